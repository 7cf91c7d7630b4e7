"""Cuts a long text into segments that the model speaks well, at ends of sentences if there are some. Pure.

Each cut depends only on the text of the segment before it and on the character after it, so it is the same however the
text comes in pieces.
"""

import re
import unicodedata

from sonorant.service.text.checks import is_wide
from sonorant.service.text.sentences import begins_sentence, ends_sentence

# Shares of the longest segment: from the first on it may end with a sentence, from the second on with a clause. At the
# whole length it ends with the next word.
_SENTENCE_SHARE = 0.5
_CLAUSE_SHARE = 0.8
_MAX_WORD_CHARS = 64  # a longer word is cut
_SEEN_CHARS = 256  # of the text before a place; enough to tell the end of a sentence from an abbreviation
_PARAGRAPH = re.compile(r"\n\s*\n\s*\Z|\u2029\s*\Z")
_CLAUSE = re.compile(r"[,;:،؛，、；：–—]\s*\Z")
_CLOSING = frozenset("'\"’”»›)]}」』》）.,;:!?…。！？，、；：")


def ends_paragraph(text: str) -> bool:
    """Whether a text ends with an empty line."""
    return bool(_PARAGRAPH.search(text[-_SEEN_CHARS:]))


class Cutter:
    def __init__(self, code: str, max_chars: int) -> None:
        """`code`: of the language, for ends of sentences."""
        self._code = code
        self._max_chars = max_chars
        self._num_chars = 0  # of the segment
        self._before = ""  # the end of the segment so far

    def restart(self) -> None:
        """Begin another segment."""
        self._num_chars, self._before = 0, ""

    def split(self, text: str) -> list[tuple[str, bool | None]]:
        """Take more text; return it in pieces. The segment ends behind each but the last: then it says whether a
        paragraph ends there, else None. There is at least one piece; the first may be empty."""
        pieces: list[tuple[str, bool | None]] = []
        begin, least = 0, self._max_chars * _SENTENCE_SHARE
        may_end = self._num_chars + len(text) > least
        for index, chars in enumerate(text if may_end else (text,)):
            if may_end and self._num_chars >= least and self._ends_before(chars):
                pieces.append((text[begin:index], ends_paragraph(self._before)))
                begin = index
                self.restart()
            self._num_chars += len(chars)
            self._before = (self._before + chars)[-_SEEN_CHARS:]
        return [*pieces, (text[begin:], None)]

    def _ends_before(self, char: str) -> bool:
        """Whether the segment ends before this character, which comes next."""
        last = self._before[-1]
        if self._num_chars >= 2 * self._max_chars + _MAX_WORD_CHARS:
            return True  # nothing but blanks, marks or accents
        if char.isspace() or char in _CLOSING or unicodedata.category(char)[0] in "MC":
            return False
        if last.isspace() or is_wide(char):
            if self._ends_sentence(char):
                return True
            if self._num_chars >= self._max_chars * _CLAUSE_SHARE and _CLAUSE.search(self._before):
                return True
            return self._num_chars >= self._max_chars
        return self._num_chars >= self._max_chars + _MAX_WORD_CHARS

    def _ends_sentence(self, char: str) -> bool:
        if ends_paragraph(self._before):
            return True
        return ends_sentence(self._before) and begins_sentence(self._before, char, self._code)
