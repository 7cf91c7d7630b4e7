"""Phrases of a text replaced by how they are to be spoken, however the text is cut. Pure.

A phrase is taken literally, upper and lower case included, and as whole words: "art" is not in "start". Scripts without
spaces have no such border. The longest phrase at a place wins, the first place in the text goes first, and what was put
in is not looked at again.
"""

import sys
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

from sonorant.service.errors import InvalidField
from sonorant.service.text.checks import check_characters, check_length, is_speakable, is_wide

MAX_PHRASES = 100
MAX_PHRASE_CHARS = 64
MAX_RESPELLING_CHARS = 128


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Checked pronunciations."""

    # By its first character, each phrase that begins with it and its respelling, the longest first.
    entries: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)

    def pronunciations(self) -> dict[str, str]:
        return dict(entry for entries in self.entries.values() for entry in entries)

    def respell(self, text: str) -> str:
        """A text that is whole."""
        return Respeller(self).push(text, is_last=True) if self.entries else text


def check_pronunciations(pronunciations: Mapping[str, str], path: str) -> Lexicon:
    if len(pronunciations) > MAX_PHRASES:
        raise InvalidField(path, f"{len(pronunciations)} phrases are over the limit of {MAX_PHRASES}")
    for phrase, respelling in pronunciations.items():
        where = f'{path}["{phrase[:MAX_PHRASE_CHARS]}"]'
        check_length(len(phrase), MAX_PHRASE_CHARS, where)
        check_length(len(respelling), MAX_RESPELLING_CHARS, where)
        check_characters(phrase, where)
        check_characters(respelling, where)
        if not phrase or phrase != phrase.strip():
            raise InvalidField(where, "a phrase is not empty, and neither begins nor ends with white space")
        if not is_speakable(respelling):
            raise InvalidField(where, "the respelling has no letter or digit, so nothing would be spoken")
    longest_first = sorted(pronunciations.items(), key=lambda entry: -len(entry[0]))
    entries: dict[str, tuple[tuple[str, str], ...]] = {}
    for entry in longest_first:
        entries[entry[0][0]] = (*entries.get(entry[0][0], ()), entry)
    return Lexicon(entries)


class Respeller:
    """One text in pieces. It holds back what may be, or become, a phrase: never more than the longest one."""

    def __init__(self, lexicon: Lexicon) -> None:
        self._lexicon = lexicon
        self._entries = lexicon.entries
        self._before = ""  # the character before what is held
        self._held = ""
        self._num_taken = 0  # characters of the text that are spoken, ...
        self._num_spoken = 0  # ... and what is spoken for them, ...
        # ... each time a phrase was replaced: where it begins and ends, in the text and in what is spoken.
        self._starts: list[tuple[int, int]] = [(0, 0)]
        self._ends: list[tuple[int, int]] = [(0, 0)]

    def restarted(self, offset: int) -> "Respeller":
        """For another text from there on, which is the beginning of a word."""
        other = Respeller(self._lexicon)
        other._num_taken, other._num_spoken = offset, self.spoken_of(offset)
        other._starts = [(other._num_taken, other._num_spoken)]
        other._ends = [(other._num_taken, other._num_spoken)]
        return other

    def flush(self) -> str:
        """The rest; what is pushed next is another text."""
        rest = self.push("", is_last=True)
        self._before = ""
        return rest

    def push(self, text: str, *, is_last: bool = False) -> str:
        """What is certain now."""
        if not self._entries:
            return text
        text = self._held + text
        said: list[str] = []
        position = 0
        while position < len(text):
            found = self._at(text, position, is_last)
            if found is None:
                break
            length, spoken = found
            said.append(spoken)
            if length > 1 or spoken != text[position]:
                self._starts.append((self._num_taken, self._num_spoken))
                self._ends.append((self._num_taken + length, self._num_spoken + len(spoken)))
            self._num_taken += length
            self._num_spoken += len(spoken)
            position += length
            self._before = text[position - 1]
        self._held = text[position:]
        return "".join(said)

    def spoken_of(self, offset: int) -> int:
        """Which offset of all that is spoken one of all text is; within a phrase, as far on as in its respelling."""
        index = max(0, bisect_right(self._starts, (offset, sys.maxsize)) - 1)
        (start, spoken_start), (end, spoken_end) = self._starts[index], self._ends[index]
        if offset >= end or start == end:
            return spoken_end + offset - end
        return spoken_start + (offset - start) * (spoken_end - spoken_start) // (end - start)

    def _at(self, text: str, position: int, is_last: bool) -> tuple[int, str] | None:
        """(matched length, how it is spoken) at `position`; None if more text could change it."""
        char = text[position]
        if _is_border(self._before, char):
            for phrase, respelling in self._entries.get(char, ()):
                end = position + len(phrase)
                if text.startswith(phrase, position):
                    if end == len(text) and not is_last and not _is_border(phrase[-1], "a"):
                        return None  # what follows decides
                    if _is_border(phrase[-1], text[end : end + 1]):
                        return len(phrase), respelling
                elif not is_last and end > len(text) and phrase.startswith(text[position:]):
                    return None
        return 1, char


def _is_border(left: str, right: str) -> bool:
    """Whether no word goes on from one character to the other; either may be missing."""
    return not (left.isalnum() and right.isalnum()) or is_wide(left) or is_wide(right)
