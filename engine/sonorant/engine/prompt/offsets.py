"""Maps tokens to the characters of their text, while both arrive piece by piece."""

from bisect import bisect_right
from collections.abc import Iterable
from operator import itemgetter

from sonorant.engine.prompt.nfc import normalize, starts_afresh
from sonorant.engine.prompt.tokenizer import Tokenizer


class TokenOffsets:
    """Push the same text here as to a `TokenStream`, and add the tokens that it releases. Offsets count code points.

    The tokens stand for the text as it is given to the model: in NFC and folded, which may change the number of
    characters, and without the whitespace around it.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._num_chars = 0  # of the text
        self._open = ""  # the end of the text, which may still be composed with what follows
        self._fold = tokenizer.fold()
        self._ends: list[int] = []  # for each character that is given, where it ends in the text
        self._has_begun = False  # whether anything but whitespace has come
        self._num_taken = 0  # given characters that tokens have covered
        self._spans: list[tuple[int, int]] = []  # for each token, its place in the text without whitespace before it

    def push(self, text: str) -> None:
        # ASCII characters compose only with what follows them.
        for piece in (text[:-1], text[-1:]) if text.isascii() else text:
            if self._open and piece and starts_afresh(piece[0]):
                self._close()
            self._open += piece
            self._num_chars += len(piece)

    def flush(self) -> None:
        """Do not compose text pushed later with the text so far."""
        self._close()

    def add(self, token_ids: Iterable[int]) -> None:
        """Add the next tokens of the pushed text."""
        for token_id in token_ids:
            token = self._tokenizer.bytes_of(token_id)
            num_chars = sum(byte & 0xC0 != 0x80 for byte in token)  # characters that begin in this token
            text = token.decode(errors="replace")
            num_spaces = min(num_chars, len(text) - len(text.lstrip()))
            start = self._end(self._num_taken + num_spaces)
            self._num_taken += num_chars
            self._spans.append((start, max(start, self._end(self._num_taken))))

    def position_of(self, char: int) -> float:
        """Return where this character begins, in tokens: token i begins at i. After the last token added, its end."""
        index = bisect_right(self._spans, char, key=itemgetter(1))
        if index == len(self._spans):
            return float(index)
        start, end = self._spans[index]
        return float(index) if char <= start else index + (char - start) / (end - start)

    def _close(self) -> None:
        start = self._num_chars - len(self._open)
        composed = normalize(self._open)
        # If composing changes the number of characters, they all end together.
        is_same = len(composed) == len(self._open)
        for number, char in enumerate(composed, start + 1):
            given = self._fold.take(char)
            if not self._has_begun:
                given = given.lstrip()
                self._has_begun = bool(given)
            self._ends += [number if is_same else self._num_chars] * len(given)
        self._open = ""

    def _end(self, num_chars: int) -> int:
        """Return where the first `num_chars` given characters end in the text, which is where the next one begins."""
        if num_chars == 0:
            return self._ends[0] - 1 if self._ends else 0
        return self._ends[num_chars - 1] if num_chars <= len(self._ends) else self._num_chars
