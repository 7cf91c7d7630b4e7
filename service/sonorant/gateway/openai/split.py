"""Text that comes in pieces, cut where sentences or clauses end, as vLLM-Omni cuts it. Pure."""

import re
from typing import Literal

Granularity = Literal["none", "sentence", "clause"]

# A mark of Latin scripts ends a unit only before white space, since it also stands in numbers and abbreviations; the
# others are never anything else. What closes a quotation belongs to what it closes.
_CLOSING = "[\"'”’»)\\]}』」）】]*"
_ENDS: dict[Granularity, re.Pattern[str]] = {
    "sentence": re.compile(rf"[.!?]+{_CLOSING}(?=\s)|[。！？…।॥؟]+{_CLOSING}(?=.)", re.DOTALL),
    "clause": re.compile(rf"[.!?,;:]+{_CLOSING}(?=\s)|[。！？…।॥؟，；：、،؛]+{_CLOSING}(?=.)", re.DOTALL),
}
_SHORT = re.compile(r"(?:\b(?:dr|mr|mrs|ms|prof|st|no|vs|etc|e\.g|i\.e|approx|fig)|\b[a-z])\.$", re.IGNORECASE)


class Splitter:
    def __init__(self, granularity: Granularity) -> None:
        self._ends = _ENDS[granularity]
        self._held = ""
        self._seen = 0  # of what is held, where no end was found

    def feed(self, text: str) -> list[str]:
        """Units that are complete, without white space around them."""
        self._held += text
        units, begin = [], 0
        for end in self._ends.finditer(self._held, self._seen):
            unit = self._held[begin : end.end()]
            if not _SHORT.search(unit):
                begin = end.end()
                if unit.strip():
                    units.append(unit.strip())
        self._held = self._held[begin:]
        self._seen = max(0, len(self._held) - 16)  # closing marks may still follow
        return units

    def rest(self) -> list[str]:
        held, self._held, self._seen = self._held.strip(), "", 0
        return [held] if held else []
