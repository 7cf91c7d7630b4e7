"""Directions in brackets, as language models write them: "[whispering] Come closer. [pause 500ms] Now." Pure."""

import regex

from sonorant.service.text.markup import NEUTRAL, Manner, Markup, ReadingPlace, Said

MAX_PAUSE_MS = 5000
PAUSE_MS = 400  # of one that has no length
MOST_CHARS = 64

_TEXT = regex.compile(r"[^\[]+")
# Not a link ("[a](b)", "[a][1]") or a footnote of markdown, nor the number of a source.
_DIRECTION = regex.compile(rf"\[(?P<words>[^\W\d_][\w' .,-]{{0,{MOST_CHARS - 1}}})\](?=[^(\[:]|\[[^\W\d_])")
_PAUSE = regex.compile(r"pause(?: +(?P<number>\d{1,5}(?:\.\d{1,3})?) ?(?P<unit>ms|s))?")
_END = "normal"


class Directions:
    def __init__(self, *, are_followed: bool) -> None:
        """`are_followed`: whether the checkpoint follows instructions. If not, only pauses have an effect."""
        self._are_followed = are_followed

    def read(self, at: ReadingPlace, markup: Markup) -> Said | None:
        """Read the direction that begins here, if one does. It holds until the next one. Raises NeedsMore."""
        if (found := at.match(_DIRECTION)) is None:
            return None
        num_written, words = len(found[0]), found["words"].strip()
        if (pause := _PAUSE.fullmatch(words.lower())) is not None:
            return Said(num_written, pause_ms=_pause_ms(pause))
        if not self._are_followed:
            markup.ignored[found[0]] = None
        else:
            markup.manner = NEUTRAL if words.lower() == _END else Manner(instructions=words)
        return Said(num_written)


class Plain(Markup):
    """A text without markup but directions."""

    def __init__(self, directions: Directions) -> None:
        super().__init__()
        self._directions = directions

    def _step(self, at: ReadingPlace) -> Said:
        if (text := at.match(_TEXT)) is not None:
            return Said(len(text[0]), text[0])
        return self._directions.read(at, self) or Said(1, "[")


def _pause_ms(pause: "regex.Match[str]") -> int:
    if pause["number"] is None:
        return PAUSE_MS
    return min(MAX_PAUSE_MS, round(float(pause["number"]) * (1 if pause["unit"] == "ms" else 1000)))
