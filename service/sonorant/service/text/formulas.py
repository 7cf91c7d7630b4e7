"""Formulas in LaTeX, as language models write them into markdown: says their letters, and signs for their commands.
Pure.

The signs are said as a checkpoint says them anywhere. Formulas that need more than a line of prose, such as matrices,
are said from left to right.
"""

from collections.abc import Mapping

import regex

from sonorant.service.text.markup import ReadingPlace, Said

# In a line: up to the next "$", which follows no blank. Most of what is none, such as "$5 a month" and "$HOME", shows
# after a few characters, so that nobody waits for it.
_DOLLAR = regex.compile(
    r"(?P<mark>\$)(?=(?:[A-Za-z](?![A-Za-z])|[\\({|+]|-(?!\d)|\d{1,9}(?:\.\d{1,9})?[A-Za-z]? ?[\\^=_{+]|"
    r"(?:[A-Za-z]{2,8}|[\d.]{1,9}[a-z]{0,2})(?=\$))"
    r"(?:[^$\n]{0,256}[^\s$])?\$[^\d])"
)
_DISPLAY = regex.compile(r"(?P<mark>\$\$)(?=[^$])")
_BRACKET = regex.compile(r"(?P<mark>\\[(\[])[ \t]{0,4}(?=[^ \t])")
# Without a mark around it, a command with braces is open up to the last of these, and one that is a sign is that alone.
_BARE = regex.compile(r"\\(?P<name>[dtc]?frac|sqrt|text|textbf|mathrm|mathbf|boxed)(?=\{[^\n])")
_CLOSES: Mapping[str, "regex.Pattern[str]"] = {
    "$": regex.compile(r"\$"),
    "$$": regex.compile(r"\$\$"),
    r"\(": regex.compile(r"\\\)"),
    r"\[": regex.compile(r"\\\]"),
    "{": regex.compile(r"(?!)"),
}

_UNSAID = regex.compile(r"\\(?:begin|end|label|tag|hspace|vspace)\{[^{}\n]{0,32}\}")
_COMMAND = regex.compile(r"\\(?P<name>[A-Za-z]{1,32})(?=[^A-Za-z])")
_BLANK = regex.compile(r"\\[,;:!> \\\n]")
_ESCAPED = regex.compile(r"\\(?P<char>[^A-Za-z])")
_DEGREES = regex.compile(r"\^(?:\\circ(?=[^A-Za-z])|\{\\circ\})")
_POWER = regex.compile(r"\^(?:(?P<of>[23])(?=[^\d.]|\.\D)|\{(?P<of>[23])\})")
_NEXT_PART = regex.compile(r"\}[ \t]{0,4}\{")  # below the bar of a fraction
_GROUP = regex.compile(r"\^\{|_\{?|[{}&]")
_REST = regex.compile(r"[^\\$^_{}&\n-]+")
_SIGNS: Mapping[str, str] = {
    "times": "×", "cdot": "×", "div": "÷", "pm": "±", "mp": "±", "leq": "≤", "le": "≤", "geq": "≥",
    "ge": "≥", "lt": "<", "gt": ">", "neq": "≠", "ne": "≠", "approx": "≈", "sim": "≈", "equiv": "=",
    "infty": "∞", "sqrt": "√", "to": "→", "rightarrow": "→", "Rightarrow": "→", "implies": "→",
    "degree": "°", "circ": "°", "dots": "…", "ldots": "…", "cdots": "…",
}  # fmt: skip
_CLOSE = frozenset("√°…")  # stand close to what they belong to
# How something looks, and what only groups. The names of all others are words, such as "alpha" and "log".
_SILENT = frozenset((
    "bf", "big", "bigg", "Big", "Bigg", "boxed", "cfrac", "dfrac", "displaystyle", "frac", "hat", "it", "left",
    "limits", "mathbb", "mathbf", "mathcal", "mathit", "mathrm", "mathsf", "middle", "nonumber", "operatorname",
    "overline", "qquad", "quad", "right", "rm", "text", "textbf", "textit", "textrm", "tfrac", "underline", "vec",
))  # fmt: skip


class Formula:
    """Is open or not. What ends with its line is closed there, and all is by an empty line."""

    def __init__(self) -> None:
        self._mark = ""  # what opened it
        self._depth = 0  # of braces

    @property
    def is_open(self) -> bool:
        return bool(self._mark)

    def begin(self, at: ReadingPlace, before: str) -> Said | None:
        """Read what opens one, if this does. `before`: the character before."""
        found = at.match(_BRACKET)
        if found is None and not before.isalnum():
            found = at.match(_DISPLAY) or at.match(_DOLLAR)
        self._depth = 0
        if found is not None:
            self._mark = found["mark"]
            return Said(len(found[0]))
        if not (before.isspace() or before in "({}="):  # "C:\text"
            return None
        if (bare := at.match(_BARE)) is not None:
            self._mark = "{"
            return Said(len(bare[0]), _word(bare["name"], before, "{"))
        if (sign := at.match(_COMMAND)) is not None and sign["name"] in _SIGNS:
            return Said(len(sign[0]), _word(sign["name"], before, at.text[sign.end()]))
        return None

    def line_ends(self, *, is_empty: bool) -> None:
        if is_empty or self._mark not in ("$$", r"\["):
            self._mark = ""

    def read(self, at: ReadingPlace, before: str) -> Said:
        """Read on within an open formula, at no line end."""
        if (closing := at.match(_CLOSES[self._mark])) is not None:
            self._mark = ""
            return Said(len(closing[0]))
        if at.match(_BLANK) is not None:
            return Said(2, " ") if at.text[at.position + 1] != "\n" else Said(1)
        if (unsaid := at.match(_UNSAID)) is not None:
            return Said(len(unsaid[0]))
        if (command := at.match(_COMMAND)) is not None:
            return Said(len(command[0]), _word(command["name"], before, at.text[command.end()]))
        if (escaped := at.match(_ESCAPED)) is not None:
            return Said(2, escaped["char"])
        if (degrees := at.match(_DEGREES)) is not None:
            return Said(len(degrees[0]), "°")
        if (power := at.match(_POWER)) is not None:
            return Said(len(power[0]), "²" if power["of"] == "2" else "³")
        if (part := at.match(_NEXT_PART)) is not None:
            return Said(len(part[0]), " ÷ ")
        if (group := at.match(_GROUP)) is not None:
            self._depth += group[0].endswith("{") - (group[0] == "}")
            if self._mark == "{" and not self._depth:
                self._mark = ""
            return Said(len(group[0]), {"^": "^", "_": " ", "&": " "}.get(group[0][0], ""))
        if (rest := at.match(_REST)) is not None:
            return Said(len(rest[0]), rest[0])
        return Said(1, "−" if at.char == "-" else at.char)


def _word(command: str, before: str, after: str) -> str:
    """Return what is said for a command, apart from what is written beside it."""
    if command in _SILENT:
        return ""
    word = _SIGNS.get(command, command)
    return word if word in _CLOSE else f"{' ' * (before.isalnum() or before in ')}')}{word}{' ' * after.isdigit()}"
