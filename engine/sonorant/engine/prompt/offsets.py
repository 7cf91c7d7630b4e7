"""Which characters of a text its tokens are, while both come piece by piece."""

from bisect import bisect_right
from collections.abc import Iterable
from operator import itemgetter

from sonorant.engine.prompt.nfc import normalize, starts_afresh
from sonorant.engine.prompt.tokenizer import Tokenizer


class TokenOffsets:
    """Text goes in as it is pushed to a `TokenStream`, tokens as that releases them. Offsets are its code points.

    Tokens are of the text in NFC, which may have fewer characters, without the white space around it.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._num_chars = 0  # of the text
        self._open = ""  # its end, that may still be composed with what follows
        self._ends: list[int] = []  # of each character in NFC
        self._has_begun = False  # something other than white space has come
        self._num_taken = 0  # of the characters in NFC, by tokens
        self._spans: list[tuple[int, int]] = []  # of each token, without the white space before it

    def push(self, text: str) -> None:
        # ASCII composes with what follows it only.
        for piece in (text[:-1], text[-1:]) if text.isascii() else text:
            if self._open and piece and starts_afresh(piece[0]):
                self._close()
            self._open += piece
            self._num_chars += len(piece)

    def flush(self) -> None:
        """What is pushed next is composed with nothing before it."""
        self._close()

    def add(self, token_ids: Iterable[int]) -> None:
        """Tokens of text that was pushed."""
        for token_id in token_ids:
            token = self._tokenizer.bytes_of(token_id)
            num_chars = sum(byte & 0xC0 != 0x80 for byte in token)  # that begin in it
            text = token.decode(errors="replace")
            num_spaces = min(num_chars, len(text) - len(text.lstrip()))
            start = self._end(self._num_taken + num_spaces)
            self._num_taken += num_chars
            self._spans.append((start, max(start, self._end(self._num_taken))))

    def position_of(self, char: int) -> float:
        """Where this character begins, in tokens: token i begins at i. Behind the last one that was added, its end."""
        index = bisect_right(self._spans, char, key=itemgetter(1))
        if index == len(self._spans):
            return float(index)
        start, end = self._spans[index]
        return float(index) if char <= start else index + (char - start) / (end - start)

    def _close(self) -> None:
        start = self._num_chars - len(self._open)
        composed = normalize(self._open)
        first = 0
        if not self._has_begun:
            first = len(composed) - len(composed.lstrip())
            self._has_begun = first < len(composed)
        # Several characters that become more or fewer end together.
        is_same = len(composed) == len(self._open)
        self._ends += [start + i + 1 if is_same else self._num_chars for i in range(first, len(composed))]
        self._open = ""

    def _end(self, num_chars: int) -> int:
        """Of so many characters in NFC: their end, which is also where the next one begins."""
        if num_chars == 0:
            return self._ends[0] - 1 if self._ends else 0
        return self._ends[num_chars - 1] if num_chars <= len(self._ends) else self._num_chars
