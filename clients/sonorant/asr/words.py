"""Splits a transcript into words, and tells which of them the next word may change in meaning or sound. Pure."""

import re

# Scripts without spaces between words: each character is a word of its own.
_UNSPACED = "\u3000-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uffef"
_WORD = re.compile(rf" ?(?:[{_UNSPACED}]|[^ {_UNSPACED}]+)")
_NUMBER_WORD = re.compile(
    r"zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen"
    r"|(?:twen|thir|for|fif|six|seven|eigh|nine)ty|hundred|thousand|million|billion|trillion|point|dot|oh"
)
_ABBREVIATION = re.compile(
    r"(?:[a-z]\.)+|(?:dr|mr|mrs|ms|mx|st|prof|rev|gen|col|capt|lt|sgt|hon|sr|jr|no|nos|vol|fig|approx|ca|cf|vs|mt|ft"
    r"|ave|blvd|rd|dept|est|inc|corp|ltd|co|jan|feb|mar|apr|jun|jul|aug|sep|sept|oct|nov|dec|mon|tue|wed|thu|fri|sat|sun)\."
)
_JOINS = "$€£¥₩₽#@&+*/=-–—'’\"“«‘([{<"  # at the end of a word, these belong to the next word
_WHOLE_LETTERS = frozenset("aio")  # letters that are words; others may be part of a spelled word


def split_words(text: str) -> list[str]:
    """Split a text into words, each with one space before it if there was white space: joined, they are the text with
    single spaces."""
    return _WORD.findall(" ".join(text.split()))


def ends_in_unspaced_script(text: str) -> bool:
    return re.search(rf"[{_UNSPACED}]$", text) is not None


def key(word: str) -> str:
    """The same key for different spellings of a word, such as "Hello," and " hello"."""
    return "".join(char for char in word.casefold() if char.isalnum())


def may_grow(word: str) -> bool:
    """Whether the next word may become part of it, or decide how it is read: "$1" ".50", "20" "26", "Dr." "Who"."""
    spelled = word.strip().casefold()
    if any(char.isdigit() for char in spelled) or spelled.endswith(tuple(_JOINS)):
        return True
    if _ABBREVIATION.fullmatch(spelled) or any(map(_NUMBER_WORD.fullmatch, spelled.split("-"))):
        return True
    return len(spelled) == 1 and spelled.isascii() and spelled.isalpha() and spelled not in _WHOLE_LETTERS
