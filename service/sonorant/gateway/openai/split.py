"""Cuts text that comes in pieces where sentences or clauses end, as vLLM-Omni does. Pure."""

import re
from typing import Literal

Granularity = Literal["none", "sentence", "clause"]

# A punctuation mark of Latin scripts ends a unit only before white space, because it also occurs in numbers and
# abbreviations; the other marks always end one. A closing quote or bracket belongs to the unit that it closes.
_CLOSING = "\"'”’»)\\]}』」）】"
_MARKS: dict[Granularity, tuple[str, str]] = {
    "sentence": (".!?", "。！？…।॥؟"),
    "clause": (".!?,;:", "。！？…।॥؟，；：、،؛"),
}
_AT_END = re.compile(rf"[.!?。！？…।॥؟][{_CLOSING}]*\s*\Z")
_END_CHARS = 32
_SHORT = re.compile(r"(?:\b(?:dr|mr|mrs|ms|prof|st|no|vs|etc|e\.g|i\.e|approx|fig)|\b[a-z])\.$", re.IGNORECASE)
_SHORT_CHARS = 8  # length of its longest match


def _ends(latin: str, others: str) -> re.Pattern[str]:
    """A pattern from the first mark to the last closing character. It is possessive and never begins in the middle of a
    run, so a text of nothing but marks takes no longer than any other."""
    ends = [rf"(?<![{marks}])[{marks}]++[{_CLOSING}]*+(?={then})" for marks, then in ((latin, r"\s"), (others, "."))]
    return re.compile("|".join(ends), re.DOTALL)


_ENDS = {granularity: _ends(*marks) for granularity, marks in _MARKS.items()}


class Splitter:
    def __init__(self, granularity: Granularity) -> None:
        self._ends = _ENDS[granularity]
        self._held = ""
        self._seen = 0  # length of the held text that was searched already

    def feed(self, text: str) -> list[str]:
        """Take more text; return the units that are complete now, without white space around them."""
        self._held += text
        units, begin = [], 0
        for found in self._ends.finditer(self._held[self._seen :]):
            end = self._seen + found.end()
            if not _SHORT.search(self._held, max(begin, end - _SHORT_CHARS), end):
                if unit := self._held[begin:end].strip():
                    units.append(unit)
                begin = end
        self._held = self._held[begin:]
        self._seen = max(0, len(self._held) - 16)  # more marks or closing characters may still follow
        return units

    @property
    def holds_sentence(self) -> bool:
        """Whether the held text is complete if nothing follows it."""
        return bool(_AT_END.search(self._held[-_END_CHARS:]))

    def rest(self) -> list[str]:
        held, self._held, self._seen = self._held.strip(), "", 0
        return [held] if held else []
