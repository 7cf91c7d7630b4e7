"""Unicode NFC of a text that arrives in pieces.

Later text can change earlier characters: "e" may still become "é", a Hangul syllable may still get its final
consonant. So the last characters are held until nothing that follows can change them, but no longer: most characters
(ideographs, digits, punctuation, spaces) compose with nothing and pass at once. A raised digit is held, too, as the
next one says how it is spoken.
"""

import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain

from tokenizers import normalizers

normalize = normalizers.NFC().normalize_str  # the stock Qwen2 normaliser
RAISED = frozenset("⁰¹²³⁴⁵⁶⁷⁸⁹⁻ⁿⁱ⁺⁼⁽⁾")


def _composing() -> tuple[frozenset[str], frozenset[str]]:
    """Return the characters that can be first, and those that can be second, in a pair that NFC composes."""
    firsts = {chr(c) for c in range(0x1100, 0x1113)}  # Hangul leading consonants; the syllables decompose into these
    seconds = {chr(c) for c in chain(range(0x1161, 0x1176), range(0x11A8, 0x11C3))}  # Hangul vowels, final consonants
    for code in chain(range(0xC0, 0x3100), range(0x10000, 0x20000)):  # all characters that pairs compose to
        mapping = unicodedata.decomposition(chr(code)).split()
        if len(mapping) == 2 and mapping[0][0] != "<":
            first, second = (chr(int(part, 16)) for part in mapping)
            if unicodedata.normalize("NFC", first + second) == chr(code):  # not excluded from composition
                firsts.add(first)
                seconds.add(second)
    return frozenset(firsts), frozenset(seconds)


_FIRSTS, _SECONDS = _composing()


@lru_cache(maxsize=4096)
def starts_afresh(char: str) -> bool:
    """Whether nothing before `char` can compose with it or be reordered past it."""
    first = unicodedata.normalize("NFD", char)[0]
    return not unicodedata.combining(first) and first not in _SECONDS


def _goes_on(before: str, char: str) -> bool:
    """Whether a character is said together with the one before it."""
    return char in RAISED and before in RAISED


@lru_cache(maxsize=4096)
def _is_closed(char: str) -> bool:
    """Whether nothing after `char` can change it or what is before it."""
    if char in RAISED:
        return False
    if "\uac00" <= char <= "\ud7a3":
        return (ord(char) - 0xAC00) % 28 > 0  # a Hangul syllable that has its final consonant
    decomposed = unicodedata.normalize("NFD", char)
    return len(decomposed) == 1 and starts_afresh(char) and decomposed not in _FIRSTS


def clusters(text: str) -> Iterator[str]:
    """Cut a whole text into the smallest parts that can be normalized one by one."""
    start = 0
    for index in range(1, len(text)):
        if starts_afresh(text[index]) and not _goes_on(text[index - 1], text[index]):
            yield text[start:index]
            start = index
    if text:
        yield text[start:]


class NfcStream:
    """Divides a text pushed in pieces into parts that can be normalized one by one: what `push` and `flush` return."""

    def __init__(self) -> None:
        self._open: list[str] = []  # pieces of the end of the text that later text may still change

    def push(self, text: str) -> str:
        """Take more text; return the part that no later text can change."""
        for cut in range(len(text), -1, -1):
            starts = cut < len(text) and text[cut] not in RAISED and starts_afresh(text[cut])
            if starts or (cut > 0 and _is_closed(text[cut - 1])):
                closed = "".join([*self._open, text[:cut]])
                self._open = [text[cut:]]
                return closed
        self._open.append(text)
        return ""

    def flush(self) -> str:
        """Return the text that is held. Text pushed later does not compose with it."""
        text = "".join(self._open)
        self._open = []
        return text
