"""Puts numbers, and letters that are said one by one, into words of the text's language: for a checkpoint that reads
digits and capitals badly. The text may arrive in pieces.

The text is folded already (`characters.py`), so it has no characters but those of the three languages, and one blank in
a row. `docs/text.md` has tables of what becomes what.
"""

from collections.abc import Mapping, Sequence

import regex

from sonorant.engine.prompt.in_words import ENGLISH
from sonorant.engine.prompt.romance import ROMANCE
from sonorant.engine.prompt.rules import MAX_HELD, SEEN_CHARS, Rules
from sonorant.engine.prompt.words import Guess

_RULES: Mapping[str, Rules] = {"english": ENGLISH, **ROMANCE}
_BEGINNING = regex.compile(r"[\p{L}\d$€@./-]")


def speaks_numbers(language: str | None) -> bool:
    """Whether there are words for numbers in a language; None: in whichever a text turns out to be."""
    return language is None or language in _RULES


class AsWritten:
    """Stands in for `WordsStream` where a checkpoint reads all that people write."""

    def push(self, text: str, ends: Sequence[int], *, is_last: bool = False) -> tuple[str, Sequence[int]]:
        return text, ends


class WordsStream:
    """Puts numbers and letters of a text that comes in pieces into words. However it is cut, the results, joined, are
    the same.

    It holds back what may become words until that has ended: numbers and the word behind them, and words that begin as
    one that is written in short does.
    """

    def __init__(self, language: str | None) -> None:
        """`language`: of the words, which has rules; None: at each number, and each word, that of the text before."""
        self._language = language
        self._guess = Guess()
        self._text = ""  # what is held, with some of what was before
        self._ends: list[int] = []  # of its characters
        self._position = 0  # where what is held begins
        self._last = ""  # the last character that was given
        self._last_end = 0  # of it
        self._after_words = False  # whether it is of words for something
        self._given: list[str] = []  # since the last push
        self._given_ends: list[int] = []

    def push(self, text: str, ends: Sequence[int], *, is_last: bool = False) -> tuple[str, Sequence[int]]:
        """Take more text, and where each of its characters ends in the text as it was written. Return the same of what
        is given for it. `is_last`: nothing is held back, and what is pushed next is another text."""
        self._text += text
        self._ends += ends
        text, ends, position = self._text, self._ends, self._position
        while position < len(text):
            begins = _BEGINNING.search(text, position)
            begin = begins.start() if begins else len(text)
            self._give(text[position:begin], ends[position:begin])
            position = begin
            rules = _RULES[self._language or self._guess.language]
            growing = rules.growing.match(text, position, position + MAX_HELD)
            if growing is None:
                break  # that was all
            end = growing.end()
            is_growing = end == len(text) < position + MAX_HELD and not is_last
            # More text may make something else of the end. Most words do not begin so: these are given as they come.
            if is_growing and not (text[position:end].isalpha() and not rules.kind.match(text, position, partial=True)):
                break
            limit = growing.start("ahead") if growing["ahead"] else end
            for match in rules.kind.finditer(text, position, end + (end < position + MAX_HELD)):
                if match.start() >= limit or match.end() > end:
                    break
                self._give(text[position : match.start()], ends[position : match.start()])
                self._say(rules, match, ends[match.start() : match.end()])
                position = match.end()
            self._give(text[position:limit], ends[position:limit])
            position = max(position, limit)
        begin = len(text) if is_last else max(0, position - SEEN_CHARS)
        self._text, self._ends, self._position = text[begin:], ends[begin:], max(0, position - begin)
        given, given_ends = "".join(self._given), self._given_ends
        self._given, self._given_ends = [], []
        if is_last:
            self._last = ""
        return given, given_ends

    def _say(self, rules: Rules, match: regex.Match[str], ends: Sequence[int]) -> None:
        """Give the words for a match of the rules."""
        parts = match.groupdict()
        said = rules.read(parts)
        if parts["to"]:
            said = f"{' ' * (self._last != ' ')}{rules.to} {said}"
        elif parts["minus"]:
            said = f"-{said}" if self._last.isalnum() else f"{rules.minus} {said}"
        self._give(said, [ends[len(ends) * n // len(said)] for n in range(len(said))], words_for=match[0])

    def _give(self, text: str, ends: Sequence[int], *, words_for: str = "") -> None:
        """Give more text, with a blank before it where the words for something would run into others. `words_for`: what
        was written, if these are the words for it."""
        if self._language is None:
            self._guess.take(words_for or text)
        if not text:
            return
        is_words = bool(words_for)
        if self._last.isalnum() and text[0].isalnum() and (is_words or self._after_words):
            self._given.append(" ")
            self._given_ends.append(self._last_end)
        self._given.append(text)
        self._given_ends += ends
        self._last, self._last_end, self._after_words = text[-1], ends[-1], is_words
