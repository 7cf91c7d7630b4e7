"""Text that comes in pieces, cut where sentences or clauses end, as vLLM-Omni cuts it. Pure."""

import re
from typing import Literal

Granularity = Literal["none", "sentence", "clause"]

# A mark of Latin scripts ends a unit only before white space, since it also stands in numbers and abbreviations; the
# others are never anything else. What closes a quotation belongs to what it closes.
_CLOSING = "\"'”’»)\\]}』」）】"
_MARKS: dict[Granularity, tuple[str, str]] = {
    "sentence": (".!?", "。！？…।॥؟"),
    "clause": (".!?,;:", "。！？…।॥؟，；：、،؛"),
}
_SHORT = re.compile(r"(?:\b(?:dr|mr|mrs|ms|prof|st|no|vs|etc|e\.g|i\.e|approx|fig)|\b[a-z])\.$", re.IGNORECASE)
_SHORT_CHARS = 8  # the longest that it finds


def _ends(latin: str, others: str) -> re.Pattern[str]:
    """From the first mark to the last of what closes. Possessive, and never from the middle of a run: a text of nothing
    but marks takes as long as any other."""
    ends = [rf"(?<![{marks}])[{marks}]++[{_CLOSING}]*+(?={then})" for marks, then in ((latin, r"\s"), (others, "."))]
    return re.compile("|".join(ends), re.DOTALL)


_ENDS = {granularity: _ends(*marks) for granularity, marks in _MARKS.items()}


class Splitter:
    def __init__(self, granularity: Granularity) -> None:
        self._ends = _ENDS[granularity]
        self._held = ""
        self._seen = 0  # of what is held, where no end was found

    def feed(self, text: str) -> list[str]:
        """Units that are complete, without white space around them."""
        self._held += text
        units, begin = [], 0
        for found in self._ends.finditer(self._held[self._seen :]):
            end = self._seen + found.end()
            if not _SHORT.search(self._held, max(begin, end - _SHORT_CHARS), end):
                if unit := self._held[begin:end].strip():
                    units.append(unit)
                begin = end
        self._held = self._held[begin:]
        self._seen = max(0, len(self._held) - 16)  # marks may go on, and closing ones still follow
        return units

    def rest(self) -> list[str]:
        held, self._held, self._seen = self._held.strip(), "", 0
        return [held] if held else []
