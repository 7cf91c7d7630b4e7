"""Replaces phrases of a text by how they are to be spoken, with the same result however the text is cut. Pure.

A phrase matches exactly, upper and lower case included, and only as whole words: "art" does not match in "start". In
scripts without spaces it matches anywhere. Phrases are replaced from left to right, the longest at each place, and
replacements are not searched again.
"""

import sys
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

from sonorant.service.errors import InvalidField
from sonorant.service.text.checks import check_text, is_speakable, is_wide

MAX_PHRASES = 100
MAX_PHRASE_CHARS = 64
MAX_RESPELLING_CHARS = 128


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Checked pronunciations."""

    # By first character: the phrases that begin with it and their respellings, the longest first.
    entries: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)

    def over(self, other: "Lexicon") -> "Lexicon":
        """Return both together; of a phrase that is in both, this one counts."""
        joined = dict(other.entries)
        for first, own in self.entries.items():
            entries = {**dict(other.entries.get(first, ())), **dict(own)}
            joined[first] = tuple(sorted(entries.items(), key=_longest_first))
        return Lexicon(joined)

    def respell(self, text: str) -> str:
        """Respell a whole text."""
        return Respeller(self).push(text, is_last=True) if self.entries else text


def check_pronunciations(pronunciations: Mapping[str, str], path: str, max_phrases: int = MAX_PHRASES) -> Lexicon:
    """Raises InvalidField. `path`: of the field, for errors."""
    if len(pronunciations) > max_phrases:
        raise InvalidField(path, f"{len(pronunciations)} phrases are over the limit of {max_phrases}")
    for phrase, respelling in pronunciations.items():
        where = f'{path}["{phrase[:MAX_PHRASE_CHARS]}"]'
        check_text(phrase, MAX_PHRASE_CHARS, where)
        check_text(respelling, MAX_RESPELLING_CHARS, where)
        if not phrase or phrase != phrase.strip():
            raise InvalidField(where, "a phrase must not be empty, nor begin or end with white space")
        if not is_speakable(respelling):
            raise InvalidField(where, "the respelling has no letter or digit, so nothing would be spoken")
    entries: dict[str, list[tuple[str, str]]] = {}
    for entry in sorted(pronunciations.items(), key=_longest_first):
        entries.setdefault(entry[0][0], []).append(entry)
    return Lexicon({first: tuple(each) for first, each in entries.items()})


def _longest_first(entry: tuple[str, str]) -> int:
    return -len(entry[0])


class Respeller:
    """Respells a text that comes in pieces. It holds back what may become a phrase: at most the longest one."""

    def __init__(self, lexicon: Lexicon) -> None:
        self._lexicon = lexicon
        self._entries = lexicon.entries
        self._before = ""  # the character before the held text
        self._held = ""
        self._num_taken = 0  # characters of the text that were respelled or passed on
        self._num_spoken = 0  # characters that came out for them
        # For each replaced phrase, where it begins and ends: in the text, and in what came out.
        self._starts: list[tuple[int, int]] = [(0, 0)]
        self._ends: list[tuple[int, int]] = [(0, 0)]

    def restarted(self, offset: int) -> "Respeller":
        """Return a respeller for another text from `offset` on, which must be the beginning of a word."""
        other = Respeller(self._lexicon)
        other._num_taken, other._num_spoken = offset, self.spoken_of(offset)
        other._starts = [(other._num_taken, other._num_spoken)]
        other._ends = [(other._num_taken, other._num_spoken)]
        return other

    def flush(self) -> str:
        """Return the rest. What is pushed next is another text."""
        rest = self.push("", is_last=True)
        self._before = ""
        return rest

    def push(self, text: str, *, is_last: bool = False) -> str:
        """Add text and return what no later text can change."""
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
        """Map an offset in the text to one in the respelled text; within a phrase, in proportion."""
        index = max(0, bisect_right(self._starts, (offset, sys.maxsize)) - 1)
        (start, spoken_start), (end, spoken_end) = self._starts[index], self._ends[index]
        if offset >= end or start == end:
            return spoken_end + offset - end
        return spoken_start + (offset - start) * (spoken_end - spoken_start) // (end - start)

    def _at(self, text: str, position: int, is_last: bool) -> tuple[int, str] | None:
        """Return (matched length, how it is spoken) at `position`, or None if more text could change it."""
        char = text[position]
        if _is_border(self._before, char):
            for phrase, respelling in self._entries.get(char, ()):
                end = position + len(phrase)
                if text.startswith(phrase, position):
                    if end == len(text) and not is_last and not _is_border(phrase[-1], "a"):
                        return None  # the next character decides
                    if _is_border(phrase[-1], text[end : end + 1]):
                        return len(phrase), respelling
                elif not is_last and end > len(text) and phrase.startswith(text[position:]):
                    return None
        return 1, char


def _is_border(left: str, right: str) -> bool:
    """Return whether a word may begin or end between two characters; either may be missing."""
    return not (left.isalnum() and right.isalnum()) or is_wide(left) or is_wide(right)
