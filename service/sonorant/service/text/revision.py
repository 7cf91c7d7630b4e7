"""What stays of a text that is revised while it is spoken, and where the revision goes on behind that. Pure.

Words are not changed in the middle: one that has begun to be heard stays whole, and as many words of the revision as
stay of the old text are taken to be in their place.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from sonorant.service.text.checks import WIDE

# The fastest speech, in characters per codec frame of 80 ms. Where the model is in its text is not known any better
# than that, and a word that was heard must not be taken back.
CHARS_PER_FRAME = 2

_WORD = re.compile(rf"[{WIDE}]|[^\s{WIDE}]+")


@dataclass(frozen=True, slots=True)
class Place:
    """The text from then on is the old one up to `from_char`, then the revision from its own `text_char` on."""

    from_char: int
    text_char: int


def heard_to(text: str, start: int, num_frames: int, respell: Callable[[str], str] = str) -> int:
    """The end of the last word that so many frames, which speak the text from `start` on, may have begun; or of the
    text, if they may have come as far."""
    left = num_frames * CHARS_PER_FRAME
    end = start
    for match in _WORD.finditer(text, start):
        if left <= 0:
            return end
        end = match.end()
        left -= len(respell(match[0])) + 1
    return len(text) if left > 0 else end


def place(text: str, from_char: int, heard: int, revision: str) -> Place:
    """Where a revision of `text` from `from_char` on holds, if what is before `heard` stays as it is."""
    if heard <= from_char:
        return Place(from_char, 0)
    num_words = sum(1 for _ in _WORD.finditer(text, from_char, heard))
    ends = [match.end() for match, _ in zip(_WORD.finditer(revision), range(num_words), strict=False)]
    if len(ends) < num_words:
        return Place(heard, len(revision))
    return Place(heard, ends[-1] if ends else 0)
