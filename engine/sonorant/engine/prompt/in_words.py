"""Numbers, and letters that are said one by one, in English words: for a checkpoint that reads digits and capitals
badly. The text may arrive in pieces.

The text is folded already (`characters.py`), so it has ASCII alone, one blank in a row, and a blank where a hyphen was
between two numbers. `docs/text.md` has a table of what becomes what.
"""

from calendar import month_name
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import regex
from num2words import num2words

MAX_HELD = 64  # characters; what is longer is read in parts
# What may be a number yet, or several with blanks between them, and the word behind, which may belong to it.
# Or a word that begins with a capital.
_GROWING = regex.compile(r"-?\$?\d[\d.,: ]*(?:%|[A-Za-z]*)|-?\$|-|[A-Z][A-Za-z]*")
_BEGINNING = regex.compile(r"[\d$A-Z-]")
_WHOLE = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)"
_SCALES: Mapping[str, str] = {"k": "thousand", "m": "million", "bn": "billion", "b": "billion"}
_SCALE = "(?i:thousand|million|billion|trillion|k|m|bn|b)"
_MAX_DIGITS = 15  # of a number that is read as one
# As the included voices say them best (docs/log/built-in-voice-2026-11.md).
_LETTERS: Mapping[str, str] = dict(
    regex.findall(
        r"(.)=([\w-]+)",
        "A=ai B=bee C=see D=dee E=ee F=eff G=gee H=aitch I=eye J=jay K=kay L=ell M=em N=en O=owe P=pee Q=cue R=are "
        "S=ess T=tee U=you V=vee W=double-you X=ex Y=why Z=zee",
    )
)
# Said letter by letter: words without a vowel, but for titles, and the most frequent of the others.
_TITLES = "MR|MRS|MS|DR|ST|JR|SR|VS"
_WITH_VOWELS = (
    "AC|AI|API|ATM|CEO|CFO|CIA|CIO|COO|CPU|CTO|DIY|EPA|ETA|EU|EV|FAQ|FBI|GPU|HIV|ID|IP|IQ|IRS|MIT|NBA|OCR|QA|SEO|"
    "SUV|UFO|UI|UK|UN|URL|US|USA|USB|UTC|UX|VIP"
)

_SPELLED = rf"(?<![A-Za-z])(?!(?:{_TITLES})\b)(?:[B-DF-HJ-NP-TV-XZ]{{2,5}}|{_WITH_VOWELS})"

Parts = Mapping[str, Any]  # what the groups of a pattern match: text, or None


def _price(parts: Parts) -> str:
    amount, scale = parts["amount"], parts["scale"]
    dollars, _, cents = amount.replace(",", "").partition(".")
    if scale or (cents and len(cents) != 2):
        scale = f" {_SCALES.get(scale.lower(), scale)}" if scale else ""
        return f"{_number(amount)}{scale} dollars"
    money = ((dollars, "dollar"), (cents or "0", "cent"))
    said = [f"{_cardinal(each)} {unit}{'s' * (int(each) != 1)}" for each, unit in money if int(each)]
    return " and ".join(said) or "zero dollars"


def _time(parts: Parts) -> str:
    minute, half = parts["minute"], parts["half"] or ""
    half = f" {_letters(half.strip().upper())}" if half else ""
    hour = _cardinal(parts["hour"])
    if minute == "00" and not parts["seconds"]:
        return f"{hour}{half}" if half else f"{hour} o'clock"
    seconds = f" {_cardinal(parts['seconds'])}" if parts["seconds"] else ""
    return f"{hour} {'oh ' * (minute[0] == '0')}{_cardinal(minute)}{seconds}{half}"


def _date(parts: Parts) -> str:
    return f"{month_name[int(parts['month'])]} {_words(parts['day'], 'ordinal')}, {_number(parts['year'])}"


def _decade(parts: Parts) -> str:
    words = _number(parts["decade"])
    return f"{words[:-1]}ies" if words.endswith("y") else f"{words}s"


def _plain(parts: Parts) -> str:
    numbers = parts["version"].split(".") if parts["version"] else [parts["number"]]
    return " point ".join(map(_number, numbers)) + " percent" * (parts["percent"] is not None)


def _letters(word: str) -> str:
    return " ".join(_LETTERS[char] for char in word)


# The first that matches counts.
_KINDS: Mapping[str, Callable[[Parts], str]] = {
    rf"\$(?P<amount>{_WHOLE}(?:\.\d+)?)(?: ?(?P<scale>{_SCALE})\b)?": _price,
    r"(?P<hour>\d{1,2}):(?P<minute>[0-5]\d)(?::(?P<seconds>[0-5]\d))?(?![\d:])(?P<half> ?(?i:am|pm)\b)?": _time,
    r"(?P<year>\d{4}) (?P<month>0[1-9]|1[0-2]) (?P<day>0[1-9]|[12]\d|3[01])(?! ?\d|[.,:]\d)": _date,
    r"(?P<groups>(?:\d{1,3} )?\d{3} (?:\d{3} )?\d{4})(?! ?\d|[.,:]\d)": lambda parts: ", ".join(
        map(_one_by_one, parts["groups"].split())
    ),
    r"(?P<ordinal>\d{1,15})(?:st|nd|rd|th)\b": lambda parts: _words(parts["ordinal"], "ordinal"),
    r"(?P<decade>\d0|\d{3}0)s\b": _decade,
    rf"(?:(?P<version>\d+(?:\.\d+){{2,}})|(?P<number>{_WHOLE}(?:\.\d+)?))(?P<percent> ?%)?": _plain,
    rf"(?P<letters>{_SPELLED})(?P<plural>s?)\b": lambda parts: _letters(parts["letters"]) + parts["plural"],
}
_ANY = "|".join(f"(?:{kind})(?P<kind{i}>)" for i, kind in enumerate(_KINDS))
_NUMBER = regex.compile(f"(?P<minus>-)?(?:{_ANY})")
_READ = tuple(_KINDS.values())


def _number(digits: str) -> str:
    """Say a number without a sign: years as such, what is no quantity digit by digit."""
    whole, _, fraction = digits.partition(".")
    if fraction:
        return f"{_number(whole)} point {_one_by_one(fraction)}"
    if "," not in whole:
        if len(whole) > 1 and whole[0] == "0":
            return _one_by_one(whole)
        if len(whole) == 4 and (1100 <= int(whole) < 2000 or 2010 <= int(whole) < 2100):
            return _words(whole, "year")
        if len(whole) > 4 and not whole.endswith("00"):
            return _one_by_one(whole)
    return _cardinal(whole.replace(",", ""))


def _cardinal(digits: str) -> str:
    return _words(digits, "cardinal") if len(digits) <= _MAX_DIGITS else _one_by_one(digits)


def _one_by_one(digits: str) -> str:
    return " ".join(map(_cardinal, digits))


def _words(digits: str, form: str) -> str:
    words: str = num2words(int(digits), to=form)
    return words.replace(",", "").replace("-", " ")


class AsWritten:
    """Stands in for `WordsStream` where a checkpoint reads all that people write."""

    def push(self, text: str, ends: Sequence[int], *, is_last: bool = False) -> tuple[str, Sequence[int]]:
        return text, ends


class WordsStream:
    """Puts numbers and letters of a text that comes in pieces into words. However it is cut, the results, joined, are
    the same.

    It holds back numbers and the word behind them, and words that begin with a capital, until these have ended.
    """

    def __init__(self) -> None:
        self._held = ""
        self._ends: list[int] = []  # of the held characters
        self._last = ""  # the last character that was given
        self._after_number = False  # whether it is of a number
        self._given: list[str] = []  # since the last push
        self._given_ends: list[int] = []

    def push(self, text: str, ends: Sequence[int], *, is_last: bool = False) -> tuple[str, Sequence[int]]:
        """Take more text, and where each of its characters ends in the text as it was written. Return the same of what
        is given for it. `is_last`: nothing is held back, and what is pushed next is another text."""
        text, ends = self._held + text, [*self._ends, *ends]
        position = 0
        while position < len(text):
            begins = _BEGINNING.search(text, position)
            begin = begins.start() if begins else len(text)
            self._give(text[position:begin], ends[position:begin])
            position = begin
            growing = _GROWING.match(text, position, position + MAX_HELD)
            if growing is None:
                break  # nothing of it is to become words
            end = growing.end()
            if end == len(text) < position + MAX_HELD and not is_last:
                break
            is_within = self._last.isalpha() and text[position].isalpha()  # a word, such as "iTV"
            for match in () if is_within else _NUMBER.finditer(text, position, end):
                self._give(text[position : match.start()], ends[position : match.start()])
                self._say(match.groupdict(), ends[match.start() : match.end()])
                position = match.end()
            self._give(text[position:end], ends[position:end])
            position = end
        self._held, self._ends = text[position:], ends[position:]
        given, given_ends = "".join(self._given), self._given_ends
        self._given, self._given_ends = [], []
        if is_last:
            self._last = ""
        return given, given_ends

    def _say(self, parts: Parts, ends: Sequence[int]) -> None:
        said = next(read for i, read in enumerate(_READ) if parts[f"kind{i}"] is not None)(parts)
        if parts["minus"]:
            said = f"-{said}" if self._last.isalnum() else f"minus {said}"
        self._give(said, [ends[len(ends) * n // len(said)] for n in range(len(said))], is_number=True)

    def _give(self, text: str, ends: Sequence[int], *, is_number: bool = False) -> None:
        """Give more text, with a blank before it where the words of a number would run into others."""
        if not text:
            return
        if self._last.isalnum() and text[0].isalnum() and (is_number or self._after_number):
            self._given.append(" ")
            self._given_ends.append(self._given_ends[-1] if self._given_ends else ends[0] - 1)
        self._given.append(text)
        self._given_ends += ends
        self._last, self._after_number = text[-1], is_number
