"""Decides what stays of a text that is revised while it is spoken, and where the revision continues. Pure.

Words are not changed in the middle: a word that may have begun to be heard stays whole. If some words of the revised
part stay, as many words of the revision are skipped.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from sonorant.service.text.checks import WIDE

# The fastest speech, in characters per codec frame of 80 ms. The model's place in its text is not known any better, and
# a word that was heard must not be taken back.
CHARS_PER_FRAME = 2

_WORD = re.compile(rf"[{WIDE}]|[^\s{WIDE}]+")


@dataclass(frozen=True, slots=True)
class RevisionPlace:
    """The new text: the old one up to `from_char`, then the revision from its `text_char` on."""

    from_char: int
    text_char: int


def heard_to(text: str, start: int, num_frames: int, respell: Callable[[str], str] = str) -> int:
    """Return the end of the last word that `num_frames` may have begun to speak, or of the text if they may have spoken
    all of it. The frames speak the text from `start` on.
    """
    left = num_frames * CHARS_PER_FRAME
    end = start
    for match in _WORD.finditer(text, start):
        if left <= 0:
            return end
        end = match.end()
        left -= len(respell(match[0])) + 1
    return len(text) if left > 0 else end


def place(text: str, from_char: int, heard: int, revision: str) -> RevisionPlace:
    """Return where a revision of `text` from `from_char` on takes effect if everything before `heard` stays."""
    if heard <= from_char:
        return RevisionPlace(from_char, 0)
    num_words = sum(1 for _ in _WORD.finditer(text, from_char, heard))
    ends = [match.end() for match, _ in zip(_WORD.finditer(revision), range(num_words), strict=False)]
    if len(ends) < num_words:
        return RevisionPlace(heard, len(revision))
    return RevisionPlace(heard, ends[-1] if ends else 0)
