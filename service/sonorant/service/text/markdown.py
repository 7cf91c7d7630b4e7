"""Markdown, as language models write it: says the text without its marks. Pure.

It is read while it is written, so a mark is judged by the characters around it and by what is open, not by a partner
that may come later: `**` before a word begins emphasis, whether or not that ever ends. docs/text.md has the rules.
"""

import html
import unicodedata
from collections.abc import Collection
from enum import Enum, auto

import regex

from sonorant.service.text.checks import is_wide
from sonorant.service.text.directions import Directions
from sonorant.service.text.formulas import Formula
from sonorant.service.text.markup import Markup, ReadingPlace, Said
from sonorant.service.text.sentences import ends_sentence


class Part(Enum):
    """What can be left out."""

    CODE = auto()  # code blocks
    TABLE = auto()
    LINK = auto()  # addresses that stand in the text; those behind a link's text are never said


# What a line may begin with; the first that fits counts.
_BLANK = regex.compile(r"[ \t\r]{0,64}(?=\n)")
_QUOTE = regex.compile(r"[ \t]{0,64}>[ \t]{0,16}(?=[^ \t])")
_FENCE = regex.compile(r"[ \t]{0,64}(?P<fence>`{3,64}|~{3,64})(?=[^`~])[^`\n]{0,64}(?=\n)")
_RULE = regex.compile(
    r"[ \t]{0,64}(?:-{1,256}|={1,256}|[*+]|(?:-[ \t]{1,8}){2,64}-|(?:\*[ \t]{0,8}){3,256}|(?:_[ \t]{0,8}){3,256})"
    r"[ \t\r]{0,16}(?=\n)"
)
_HEADING = regex.compile(r"[ \t]{0,64}#{1,6}(?:[ \t]{1,16}(?=[^ \t])|(?=\n))")
_CLOSING = regex.compile(r"[ \t]{1,16}#{1,64}[ \t\r]{0,16}(?=\n)")  # of a heading
_ITEM = regex.compile(
    r"[ \t]{0,64}[-*+•][ \t]{1,16}"
    r"(?:\[[ xX]\][ \t]{1,16}(?=[^ \t])|(?=[^ \t\[])|(?=\[[^ xX])|(?=\[[ xX][^\]])|(?=\[[ xX]\][^ \t]))"
)
_NUMBER = regex.compile(r"[ \t]{0,64}(?=\d{1,9}[.)][ \t])")
# The line below the head of a table, whose rows need not begin with a bar
_RULED = regex.compile(r"[ \t]{0,64}(?::?-{1,64}:?[ \t]{0,16})?\|[ \t\r:|-]{0,512}(?=\n)")
_ROW = regex.compile(r"[ \t]{0,64}\|[ \t]{0,64}(?=[^ \t])")
_NOTE = regex.compile(r"\[\^[^\]\s]{1,32}\]:[ \t]{0,16}(?=[^ \t])")
_ADDRESS = regex.compile(r"\[[^\]\n^]{1,64}\]:[ \t]{1,16}[^\s]{1,2048}[^\n]{0,256}(?=\n)")
_MARKED = (  # with the kind of line that it begins; "" = nothing more of this line is said
    (_BLANK, "blank"), (_FENCE, "fence"), (_RULE, "rule"), (_HEADING, "heading"), (_ITEM, "item"), (_NUMBER, "item"),
    (_RULED, "rule"), (_ROW, "row"), (_NOTE, "item"), (_ADDRESS, "rule"),
)  # fmt: skip
_MAY_BE_MARKED = frozenset(" \t\r\n<>`~-=*_#+•0123456789|[:")

# Within a line
_WORDS = regex.compile(r"[^\\$*_`~\[\]!<&|【\n]+")
_WORDS_OR_ADDRESS = regex.compile(r"[^\\$*_`~\[\]!<&|【\nh]+|h")
_CELL = regex.compile(r"[ \t]{0,64}\|[ \t\r]{0,64}(?=[^ \t\r])")
_CELL_WORDS = regex.compile(r"[^\\$*_`~\[\]!<&|【\n \t\r]+|[ \t\r]")
_HEADING_WORDS = regex.compile(r"[^\\$*_`~\[\]!<&|【\n \t\rh]+|[ \t\rh]")
_REST = regex.compile(r"[^\n]+")
_CODE = regex.compile(r"[^`\n]+")
_TICKS = regex.compile(r"`{1,64}(?=[^`])")
_MARKS = {
    "*": regex.compile(r"\*{1,64}(?=[^*])"),
    "_": regex.compile(r"_{1,64}(?=[^_])"),
    "~": regex.compile(r"~{1,64}(?=[^~])"),
}
_ESCAPE = regex.compile(r"\\[!-/:-@\[-`{-~\n]")
_IMAGE = regex.compile(r"!(?=\[)")
_LINK = regex.compile(r"\[(?=[^\W\d])")
_REFERENCE = regex.compile(r"\[\^[^\]\s]{1,32}\]")
_CITED = regex.compile(r"\[[1-9]\d?\](?=[.,;!?\n]|\[[1-9]\d?\][^(])")  # "Press [1] for" goes on as no source does
_SOURCE = regex.compile(r"【\d{1,4}(?::\d{1,4})?†[^】\n]{0,64}】")  # as OpenAI's assistants name theirs
_TARGET = regex.compile(
    r"""\]\((?:<[^<>\n]{0,2048}>|[^\s()<>]{0,2048}(?:\([^\s()<>]{0,256}\)[^\s()<>]{0,256}){0,2})"""
    r"""(?:[ \t]{1,4}(?:"[^"\n]{0,256}"|'[^'\n]{0,256}'))?[ \t]{0,4}\)"""
)
_LABEL = regex.compile(r"\]\[\d{1,4}\]")  # of an address that stands elsewhere
_NEXT = regex.compile(r"\](?=\[)")  # another bracket follows at once
_IN_ANGLES = regex.compile(r"<(?P<address>(?:https?://|mailto:)[^\s<>]{1,2048}|[\w.+-]{1,64}@[\w.-]{1,255})>")
_TAG = regex.compile(
    r"</?(?:a|abbr|b|blockquote|br|center|code|del|details|div|em|font|h[1-6]|hr|i|img|ins|kbd|li|mark|ol|p|pre|q|s|"
    r"samp|small|span|strike|strong|sub|summary|sup|table|tbody|td|th|thead|tr|tt|u|ul)"
    r"""(?:[ \t]{1,4}[a-z-]{1,32}=(?:"[^"<>\n]{0,512}"|'[^'<>\n]{0,512}')){0,8}[ \t]{0,4}/?>""",
    regex.IGNORECASE,
)
_COMMENT = regex.compile(r"<!--[^>]{0,512}-->")
# What a model thinks before it answers, and asks of tools; nobody is to hear it
_THINK = regex.compile(r"[ \t]{0,64}<(?P<name>think|thinking|thought|reasoning|tool_call|tool_response|function_call)>")
_THOUGHTS = regex.compile(r"[^<\n]+|\n")
_ENTITY = regex.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_SCHEME = regex.compile(r"https?://(?=[^\s])")
_IN_ADDRESS = regex.compile(r"[^\s<>()\[\].,;:!?*]+|[.,;:!?]{1,16}(?=[^\s.,;:!?])")
# Tags that stand between words.
_BREAK = regex.compile(
    r"</?(?:blockquote|br|center|details|div|h[1-6r]|li|ol|p|pre|summary|t\w{1,4}|ul)\b", regex.IGNORECASE
)
_SEEN_CHARS = 16  # enough to see how a line ends
_ENDED = frozenset(",;:،؛，、；：")  # beside the marks of sentences


class Markdown(Markup):
    def __init__(self, leave_out: Collection[Part] = (), directions: Directions | None = None) -> None:
        super().__init__()
        self._directions = directions
        self._leave_out = leave_out
        self._words = _WORDS_OR_ADDRESS if Part.LINK in leave_out else _WORDS
        self._begins_line = True
        self._line = ""  # the kind of line; see `_MARKED`
        self._fence = ""  # that of the code block that is open
        self._ticks = 0  # of the code that is open within a line
        self._thoughts = ""  # the tag of those that are open
        self._open: set[str] = set()  # marks of emphasis that is open
        self._formula = Formula()
        self._in_address = False
        self._is_link = False  # whether the latest bracket may be that of a link
        self._before = "\n"  # the character before
        self._said = ""  # the last of what was said of this line

    def _step(self, at: ReadingPlace) -> Said:
        said = self._read(at)
        if said.num_written:
            self._before = at.text[at.position + said.num_written - 1]
        self._said = "" if self._begins_line else (self._said + said.text)[-_SEEN_CHARS:]
        return said

    def _read(self, at: ReadingPlace) -> Said:
        if self._fence:
            return self._in_code(at)
        if self._thoughts:
            return self._in_thoughts(at)
        if self._formula.is_open and at.char != "\n":
            self._begins_line = False
            return self._formula.read(at, self._before)
        if self._begins_line:
            line = (
                at if at.may_grow or at.has_words else at.growing()
            )  # a pause does not settle what a mark alone begins
            if at.char in _MAY_BE_MARKED and (said := self._line_start(line)) is not None:
                return said
            self._begins_line = False
        if at.char == "\n":
            return self._line_end()
        if self._line in ("fence", "rule", "blank") or (self._line == "row" and Part.TABLE in self._leave_out):
            return _left_out(at, _REST)
        if self._ticks:
            return self._in_ticks(at)
        return self._inline(at)

    # Lines

    def _line_start(self, at: ReadingPlace) -> Said | None:
        if (quote := at.match(_QUOTE)) is not None:
            return Said(len(quote[0]))
        if (think := at.match(_THINK)) is not None:
            self._thoughts = think["name"]
            self.ignored[self._endless] = None
            return Said(len(think[0]))
        for pattern, kind in _MARKED:
            if (found := at.match(pattern)) is None:
                continue
            self._line = kind
            if kind in ("blank", "rule", "heading", "item", "row"):
                self._open.clear()
            if kind == "fence":
                self._fence = found["fence"]
            self._begins_line = False
            return Said(len(found[0])) if found[0] or at.char == "\n" else None
        return None

    def _line_end(self) -> Said:
        said = self._said.rstrip()
        self._formula.line_ends(is_empty=self._line == "blank")
        is_closed = self._line not in ("heading", "item", "row") or not said
        if not (is_closed or ends_sentence(said) or said[-1] in _ENDED):
            return Said(0, ".")  # the end of the line is read next
        self._begins_line, self._line, self._ticks, self._in_address = True, "", 0, False
        return Said(1, "\n")

    def _in_code(self, at: ReadingPlace) -> Said:
        """Read a code block. It is closed by its own mark alone, or goes on to the end of the text."""
        if self._begins_line:
            closing = regex.compile(rf"[ \t]{{0,64}}{self._fence[0]}{{{len(self._fence)},64}}[ \t\r]{{0,16}}(?=\n)")
            if (found := at.match(closing)) is not None:
                self._fence, self._begins_line, self._line = "", False, "fence"
                return Said(len(found[0]))
            self._begins_line = False
        is_silent = Part.CODE in self._leave_out or self._line == "fence"
        if at.char == "\n":
            self._begins_line, self._line = True, ""
            return Said(1, "\n")
        return _left_out(at, _REST) if is_silent else _as_it_is(at, _REST)

    def _in_thoughts(self, at: ReadingPlace) -> Said:
        """Leave out what a model thinks: all up to its closing tag, behind which a line begins, or to the end of the
        text."""
        if (closing := at.growing().match(regex.compile(f"</{self._thoughts}>"))) is not None:
            del self.ignored[self._endless]
            self._thoughts = ""
            return Said(len(closing[0]))
        return _left_out(at, _THOUGHTS)

    @property
    def _endless(self) -> str:
        return f"<{self._thoughts}> without </{self._thoughts}>"

    # Within a line

    def _in_ticks(self, at: ReadingPlace) -> Said:
        if at.char != "`":
            return _as_it_is(at, _CODE)
        ticks = at.match(_TICKS)
        if ticks is not None and len(ticks[0]) == self._ticks:
            self._ticks = 0
            return Said(len(ticks[0]))
        return _as_it_is(at, _TICKS)

    def _inline(self, at: ReadingPlace) -> Said:
        char = at.char
        if self._line == "row":
            if (cell := at.match(_CELL)) is not None:
                is_last = at.text[cell.end()] == "\n" or not self._said
                return Said(len(cell[0]), "" if is_last else ", ")
            if (words := at.match(_CELL_WORDS)) is not None:
                return Said(len(words[0]), words[0])
        if Part.LINK in self._leave_out and (said := self._address(at)) is not None:
            return said
        if self._line == "heading":
            if (closing := at.match(_CLOSING)) is not None:
                return Said(len(closing[0]))
            if (words := at.match(_HEADING_WORDS)) is not None:
                return Said(len(words[0]), words[0])
        if (words := at.match(self._words)) is not None:
            return Said(len(words[0]), words[0])
        if char in _MARKS and (marks := at.match(_MARKS[char])) is not None:
            return self._emphasis(at, marks)
        if char == "`" and (ticks := at.match(_TICKS)) is not None:
            self._ticks = len(ticks[0])
            return Said(self._ticks)
        if char in "\\$" and (formula := self._formula.begin(at, self._before)) is not None:
            return formula
        if char == "\\" and (escape := at.match(_ESCAPE)) is not None:
            return Said(1) if escape[0][1] == "\n" else Said(2, escape[0][1])
        if char == "!" and self._before in "\n[(|" and at.match(_IMAGE):
            return Said(1)
        if char == "[":
            if self._directions is not None and (direction := self._directions.read(at, self)) is not None:
                return direction
            reference = at.match(_REFERENCE) or (None if self._before == "\n" else at.match(_CITED))
            self._is_link = at.match(_LINK) is not None and not self._before.isalnum()
            return Said(1 if reference is None else len(reference[0]))
        if char == "]":
            target = at.match(_TARGET) or (at.match(_LABEL) if self._is_link else None)
            if target is None:
                return Said(1, " " if at.match(_NEXT) else "")
            return Said(len(target[0]))
        if char == "<":
            return self._tag(at)
        if char == "【" and (source := at.match(_SOURCE)) is not None:
            return Said(len(source[0]))
        if char == "&" and (entity := at.match(_ENTITY)) is not None:
            given = html.unescape(entity[0])
            return Said(len(entity[0]), " " if unicodedata.category(given[:1] or "\0") == "Cc" else given)
        return Said(1, char)

    def _emphasis(self, at: ReadingPlace, marks: "regex.Match[str]") -> Said:
        """Say marks only if they neither open nor close anything."""
        mark, before, after = marks[0], self._before, at.text[marks.end()]
        is_open = mark in self._open
        is_between = is_wide(before) or is_wide(after)  # words, which have no blanks there
        is_within = mark == "**" and before.isalpha() and after.isalpha()  # a word, of which a part is stressed
        if before.isspace():  # only a pause in the text may hide what comes next
            is_said = after.isspace() and not at.is_end(marks.end())
        elif before.isalnum() and after.isalnum():
            is_said = (
                mark[0] == "_" or (before.isdigit() and after.isdigit()) or not (is_open or is_between or is_within)
            )
        else:
            is_said = not is_open and (after.isspace() or (before.isalnum() and not is_between))
        if is_said or mark == "~":  # "about"
            return Said(len(mark), mark)
        if is_open and not before.isspace():
            self._open.remove(mark)
        else:
            self._open.add(mark)
        return Said(len(mark))

    def _tag(self, at: ReadingPlace) -> Said:
        if (address := at.match(_IN_ANGLES)) is not None:
            return Said(len(address[0]), "" if Part.LINK in self._leave_out else address["address"])
        for pattern in (_TAG, _COMMENT):
            if (tag := at.match(pattern)) is not None:
                return Said(len(tag[0]), " " if _BREAK.match(tag[0]) else "")
        return Said(1, "<")

    def _address(self, at: ReadingPlace) -> Said | None:
        """Leave out an address, but not the mark of a sentence behind it."""
        if not self._in_address and not self._before.isalnum() and at.char == "h":
            self._in_address = at.match(_SCHEME) is not None
        if self._in_address:
            if (found := at.match(_IN_ADDRESS)) is not None:
                return Said(len(found[0]))
            self._in_address = False
        return None


def _as_it_is(at: ReadingPlace, pattern: "regex.Pattern[str]") -> Said:
    found = at.match(pattern)
    return Said(1, at.char) if found is None else Said(len(found[0]), found[0])


def _left_out(at: ReadingPlace, pattern: "regex.Pattern[str]") -> Said:
    found = at.match(pattern)
    return Said(1 if found is None else len(found[0]))
