"""Numbers, and letters that are said one by one, in English words: for a checkpoint that reads digits and capitals
badly. The text may arrive in pieces.

The text is folded already (`characters.py`), so it has ASCII alone and one blank in a row. `docs/text.md` has a table
of what becomes what, and `english.toml` the words.
"""

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import regex
from num2words import num2words

MAX_HELD = 64  # characters; what is longer is read in parts
_SEEN_CHARS = 24  # before a place, as many as tell what it is
_TABLES: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("english.toml").read_text(encoding="utf-8"))
_WORDS: Mapping[str, Sequence[str]] = {kind: words.split() for kind, words in _TABLES["words"].items()}
_LETTERS = dict(zip(ascii_uppercase, _WORDS["letters"], strict=True))
_MONTHS = _WORDS["months"]
_NAMES = {name[:3]: name for name in (*_MONTHS, *_WORDS["days"])} | _TABLES["names"]  # of days and months
_BEFORE: Mapping[str, str] = _NAMES | _TABLES["before"]
_SHORT: Mapping[str, str] = _BEFORE | _TABLES["behind"]
_UNITS: Mapping[str, str] = _TABLES["units"]
_MONEY: Mapping[str, str] = _TABLES["money"]
_WAYS = {way[0]: way for way in _WORDS["ways"]}
_ONES = ("", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX")
_ROMAN = [tens + ones for tens in ("", "X", "XX", "XXX", "XL", "L") for ones in _ONES]
_SCALES: Mapping[str, str] = {"k": "thousand", "m": "million", "bn": "billion", "b": "billion"}
_MAX_DIGITS = 15  # of a number that is read as one


def _one_of(words: Iterable[str]) -> str:
    return "|".join(regex.escape(word) for word in sorted(words, key=len, reverse=True))


_WHOLE = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)"
_SCALE = "(?i:thousand|million|billion|trillion|k|m|bn|b)"
_UNIT = _one_of(_UNITS)
_NAME = _one_of([*_NAMES, *_NAMES.values()])
_MONTH = _one_of([*_MONTHS, *(short for short, name in _NAMES.items() if name in _MONTHS)])
_DAY = r"(?:3[01]|[12]\d|0?[1-9])"
_MONTH_OF_YEAR = r"(?:1[0-2]|0?[1-9])"
# Said letter by letter: words, but for "IT" among others in capitals, and single letters, but for "a" and "I".
_TITLES, _KNOWN = _one_of(_WORDS["titles"]), _one_of(_WORDS["spelled"])
_SPELLED = (
    rf"(?<![A-Za-z'])(?!(?:{_TITLES})\b)(?:[B-DF-HJ-NP-TV-XZ]{{2,5}}|{_KNOWN}|"
    rf"(?<=[a-z], )[A-Z]{{2}}(?! [A-Z])|IT(?<!\b[A-Z]{{2,9}} IT)(?! [A-Z]{{2}})|[A-Z]{{1,3}}(?=\d)|"
    rf"(?!(?:{_one_of(_WORDS['two'])}) )[A-Z]{{2}}(?<!\b[A-Z]{{2,9}} [A-Z]{{2}})(?=[ -]\d))|"
    r"(?<![A-Za-z'.])[B-HJ-Z](?![a-z'])|(?<![A-Za-z'.])[b-hj-z](?![A-Za-z'.])"
)
_DAYS = _one_of(name for both in _NAMES.items() if both[1] in _WORDS["days"] for name in both)
# Before two numbers that are a month and a day, if 9/11 and halves are not meant
_DATED = rf"(?:on|due|since|until|before|after|by(?! [1-9]/[1-9](?!\d))|{_DAYS})[.,]?(?! 9/11)"
_SHORT_BEFORE = _one_of(set(_BEFORE) - {"Sun"})  # "in the Sun."
_ALWAYS_SHORT = _one_of(short for short in _BEFORE if short.islower() or short in _WORDS["no_words"])
_SHORT_BEHIND = _one_of(_TABLES["behind"])
_STOP = r"(?:\.(?!\.)(?P<stop>(?=$| [A-Z\d]))?)?"  # of an abbreviation, which may be that of its sentence
# What is no unit behind a number: an apostrophe or a quotation mark that ends what one began, and the "s" of "747s".
_END = r"""(?<=[ -]|(?<!\w)'[^']{0,20})'|(?<=[ -]|(?<!\d)"[^"]{0,20})"|(?<=\d{3}|[A-Za-z-]\d+)s\b"""

# What may be a number yet, or several with blanks between them, and the word behind, which may belong to it; or a word.
# What is behind an abbreviation shows what it is.
_US = r"(?<![A-Za-z])US\$"
_COINS = rf"\b(?:{_one_of(money for money in _MONEY if money.isalpha())}) "
_DIGITS = rf"(?:{_US}|(?:{_COINS})?-?[$.]?)\d+(?:(?:[.,:/']|-\$?| (?:- )?)\d+)*(?:[.,:/']|-\$?| (?:- ?)?)?"
_WORD = r"[A-Za-z]+(?:\.[A-Za-z]+)*\.?"
_BEGUN = _one_of([*_SHORT, *_MONTHS, *(unit.split()[0] for unit in _UNITS), *_WAYS, "IT", "No", "St", *_MONEY])
_AHEAD = rf"(?<=(?<![A-Za-z])(?:{_BEGUN}|[A-Z]{{2}})s?\.?)[ -][^ ]{{0,2}}(?: [^ ]?)?"
_GROWING = regex.compile(
    rf"(?:\bhttps?: ?|(?:- )?{_DIGITS}(?:[%\"]|(?!{_COINS}\d){_WORD})?|-?\$|{_US}|-\.|@|- ?|/[A-Za-z]*|"
    rf"\b(?:{_NAME})(?: ?- ?[A-Za-z]*| )|{_WORD}|(?:\.[A-Za-z]+)*\.?)"
    rf"(?P<ahead>{_AHEAD})?"
)
_BEGINNING = regex.compile(r"[A-Za-z\d$@./-]")

Parts = Mapping[str, Any]  # what the groups of a pattern match: text, or None


def _price(parts: Parts) -> str:
    amount, scale = parts["amount"], parts["scale"]
    least = f"{_number(parts['least'])} to " if parts["least"] else ""
    names = _MONEY[parts["money"].strip()].split("|")
    whole, _, rest = amount.replace(",", "").partition(".")
    if scale or (rest and len(rest) != 2):
        scale = f" {_SCALES.get(scale.lower(), scale)}" if scale else ""
        return f"{least}{_number(amount)}{scale} {names[1]}"
    of_amount = (whole, names[:2]), (rest or "0", names[2:])
    said = (f"{_cardinal(digits)} {name[int(digits) != 1]}" for digits, name in of_amount if int(digits))
    return least + (" and ".join(said) or f"zero {names[1]}")


def _time(parts: Parts) -> str:
    minute, seconds = parts["minute"], parts["seconds"]
    hour = _cardinal(parts["hour"])
    if minute == "00" and not seconds:
        return hour if parts["half"] is not None else f"{hour} o'clock"
    said = f"{hour} {'oh ' * (minute[0] == '0')}{_cardinal(minute)}"
    return f"{said} {_cardinal(seconds)}" if seconds else said


def _date(parts: Parts) -> str:
    month, year = parts["month"], parts["year"] or ""
    name = _MONTHS[int(month) - 1] if month.isdecimal() else _SHORT.get(month, month)
    if len(year) == 2:
        year = f"{20 - (year > '69')}{year}"
    return f"{name} {_words(parts['day'], 'ordinal')}" + (year and f", {_number(year)}")


def _fraction(parts: Parts) -> str:
    whole, above, below = parts["whole"] or "", parts["above"], parts["below"]
    is_part = 0 < float(above) < int(below) < 10 and above.isdecimal()
    if not (whole or is_part or (above == "1" != below)):
        return f"{_number(above)} {'out of' if float(above) <= int(below) else 'over'} {_number(below)}"
    whole = whole and f"{_number(whole)} and "
    name = {"2": "half", "4": "quarter"}.get(below) or _words(below, "ordinal")
    several = "" if int(above) == 1 else "s"
    return f"{whole}{_cardinal(above)} {name}{several}"


def _ordinal(parts: Parts) -> str:
    return _words(parts["ordinal"], "ordinal")


def _groups(parts: Parts) -> str:
    return ", ".join(map(_one_by_one, regex.split("[ .-]", parts["groups"])))


def _roman(parts: Parts) -> str:
    number = str(_ROMAN.index(parts["roman"]))
    return _cardinal(number) if parts["king"] is None else f"the {_words(number, 'ordinal')}"


def _decade(parts: Parts) -> str:
    words = _number(parts["decade"])
    return f"{words[:-1]}ies" if words.endswith("y") else f"{words}s"


def _plain(parts: Parts) -> str:
    numbers = parts["version"].split(".") if parts["version"] else [parts["number"]]
    return " point ".join(map(_number, numbers)) + " percent" * (parts["percent"] is not None)


def _unit(parts: Parts) -> str:
    one, _, several = _UNITS[parts["unit"]].partition("|")
    said = one if parts["one"] is not None else several or f"{one}s"
    return said if said[-1] == "." else said + _stop(parts)


def _short(parts: Parts) -> str:
    return _SHORT[parts["short"]] + _stop(parts)


def _letters(parts: Parts) -> str:
    said = " ".join(_LETTERS[char.upper()] for char in parts["letters"] if char != ".")
    return said + (parts["plural"] or "") + _stop(parts)


def _stop(parts: Parts) -> str:
    return "." * (parts["stop"] is not None)


# The first that matches counts.
_KINDS: Mapping[str, Callable[[Parts], str]] = {
    rf"(?P<money>\$|{_US}|{_COINS})(?:(?P<least>{_WHOLE}(?:\.\d+)?)-(?=\d))?"
    rf"(?P<amount>{_WHOLE}(?:\.\d+)?)(?: ?(?P<scale>{_SCALE})\b)?": _price,
    r"(?P<hour>\d{1,2}):(?P<minute>[0-5]\d)(?::(?P<seconds>[0-5]\d))?(?![\d:])(?P<half>(?= ?(?i:[ap]\.?m)\b))?": _time,
    r"(?P<year>\d{4})[-/](?P<month>0[1-9]|1[0-2])[-/](?P<day>0[1-9]|[12]\d|3[01])(?!-?\d|[.,:]\d)": _date,
    rf"(?:(?P<month>{_MONTH_OF_YEAR})/(?P<day>{_DAY})|(?P<day>{_DAY})/(?P<month>{_MONTH_OF_YEAR}))"
    rf"(?:/(?P<year>\d{{4}}|\d\d)|(?<=\b{_DATED} [\d/]{{3,5}}))(?![/\d])|"
    rf"(?<![\d.])(?P<day>{_DAY})\.(?P<month>{_MONTH_OF_YEAR})\.(?P<year>(?:19|20)\d\d)(?!\.?\d)": _date,
    rf"(?P<day>{_DAY}) (?P<month>{_MONTH})\b": _date,
    rf"(?<=\b(?:{_MONTH})\.? (?:\d{{1,2}}-)?)(?P<ordinal>{_DAY})(?![\d%]|[.,:]\d|st|nd|rd|th)": _ordinal,
    rf"(?:(?P<whole>\d+) (?=\d+/))?(?!(?:{_one_of(_WORDS['pairs'])})(?!\d)|0\d|\d{{4}}/\d\d(?!\d))"
    r"(?<![\d/])(?P<above>\d+(?:\.\d+)?)/(?P<below>[1-9]\d*)(?!/)": _fraction,
    rf"(?P<groups>\d+(?:-\d+){{2,}}|(?<=plus )\d+(?:[ -]\d+){{2,}}|\d{{2,}}(?:[ -]\d+)*[ -]0\d+(?:[ -]\d+)*|"
    rf"(?<=\b(?:{_one_of(_TABLES['words']['coded'].split(', '))})(?: is|:)? )\d{{4,}}|"
    r"(?:\d{1,3} )?\d{3}[ -](?:\d{3}[ -])?\d{4}|\d{3}\.\d{3}\.\d{4})(?! ?\d|[.,:]\d)": _groups,
    r"(?P<ordinal>\d{1,15})(?:st|nd|rd|th)\b": _ordinal,
    r"(?<!\b(?:after|every|for|than|within) )(?P<decade>\d0|\d{3}0)s\b": _decade,
    r"(?<=\d):(?=\d)": lambda parts: "to",
    rf"(?:(?P<version>\d+(?:\.\d+){{2,}})|(?P<number>{_WHOLE}(?:\.\d+)?|(?<![\w.])\.\d+))(?P<percent> ?%)?": _plain,
    rf"\b(?P<from>{_NAME}) ?- ?(?P<until>{_NAME})\b": (
        lambda parts: " to ".join(_NAMES.get(parts[name], parts[name]) for name in ("from", "until"))
    ),
    r"(?<=\d )-(?= \d[\d. -]* equals\b)": lambda parts: "minus",
    r"(?<=(?:(?i:[ap]\.?m)\.?|:\d\d|\$\d{1,9}(?:\.\d\d)?) )-(?= [$\d])": lambda parts: "to",
    r"(?<=\d )(?P<way>[NSE]|W(?=\.))\b\.?(?= [A-Z\d])": lambda parts: _WAYS[parts["way"]],
    r"(?<=\d['\"]? ?)x(?= ?\d)": lambda parts: "by",
    rf"(?<=\d[ -]?)(?P<one>(?<=(?<![\d.,])1 ?|-))?(?!{_END})(?P<unit>{_UNIT})(?:(?<=[a-z])s)?(?!\p{{L}}){_STOP}": _unit,
    rf"(?<=(?:\d ?|/)(?:{_UNIT})s?|\d)/(?:(?P<per>{_UNIT})(?![A-Za-z])|(?=[a-z]{{2}}))": (
        lambda parts: f"per {_UNITS.get(parts['per'], '').partition('|')[0]}"
    ),
    r"\bNo\.(?= \d)": lambda parts: "number",
    rf"\b(?P<short>{_SHORT_BEFORE})(?:\.|(?= ?\d))|\b(?P<short>{_ALWAYS_SHORT})\b|\b(?P<short>Wed|Sat)(?=,)": _short,
    rf"\b(?P<short>{_SHORT_BEHIND})\b{_STOP}": _short,
    rf"(?<=\d[A-Za-z ]{{0,{_SEEN_CHARS - 3}}}[A-Za-z] |[a-z,] (?!Fort|Lake|Mount|Port)[A-Z][a-z]{{1,14}} )St\b{_STOP}|"
    r"\bSt\.(?P<stop>$)?(?! [A-Z])": lambda parts: "Street" + _stop(parts),
    r"\bSt\.": lambda parts: "Saint",
    r"(?<![A-Za-z])(?P<letters>[A-Z](?:\.[A-Z])+)\b(?:\.(?P<stop>$)?)?": _letters,
    r"\bv(?=\d)": lambda parts: "version",
    rf"(?:(?<=\b(?:{_one_of(_WORDS['numbered'])}) )|(?<=\b(?P<king>{_one_of(_WORDS['kings'])}) )(?!I\b)|"
    rf"(?<=\b[A-Z][a-z]{{1,14}} )(?!IV\b)(?=[IVX]{{2}}|L[IVX]))(?!L\b)"
    rf"(?P<roman>{_one_of(_ROMAN[1:])})\b": _roman,
    rf"(?P<letters>{_SPELLED})(?P<plural>s?)(?![A-Za-z])": _letters,
    r"(?<=\.)(?P<letters>[b-df-hj-np-tv-z]{2,4})(?![A-Za-z])": _letters,
    r"\bhttps?: ?|\bwww\.(?=\w)": lambda parts: "",
    r"@": lambda parts: "at",
    r"(?<=\.[a-z]{2,6}(?:/[^ ]{0,16})?)/(?=\w)": lambda parts: "slash",
    r"/": lambda parts: " ",
    r"(?<=[a-z\d])\.(?=[a-z]{2})": lambda parts: "dot",
}
_ANY = "|".join(f"(?:{kind})(?P<kind{i}>)" for i, kind in enumerate(_KINDS))
_MINUS = r"(?P<to>(?<=\d(?:st|nd|rd|th|s|%| ?[ap]\.?m\.?)?)-(?=[\d$]))|(?P<minus>-)"
_KIND = regex.compile(f"(?:{_MINUS})?(?:{_ANY})")
_READ = tuple(_KINDS.values())


def _number(digits: str) -> str:
    """Say a number without a sign: years as such, what is no quantity digit by digit."""
    whole, _, fraction = digits.partition(".")
    if fraction:
        return f"{whole and _number(whole)} point {_one_by_one(fraction)}".lstrip()
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


def _may_become_words(text: str, position: int, end: int) -> bool:
    """Whether more text may make something else of the end of a text. Most words do not begin so: these are given as
    they come, since a listener waits for the first."""
    return not text[position:end].isalpha() or _KIND.match(text, position, partial=True) is not None


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

    def __init__(self) -> None:
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
            growing = _GROWING.match(text, position, position + MAX_HELD)
            if growing is None:
                break  # that was all
            end = growing.end()
            is_growing = end == len(text) < position + MAX_HELD and not is_last
            if is_growing and _may_become_words(text, position, end):
                break
            limit = growing.start("ahead") if growing["ahead"] else end
            for match in _KIND.finditer(text, position, end + (end < position + MAX_HELD)):
                if match.start() >= limit or match.end() > end:
                    break
                self._give(text[position : match.start()], ends[position : match.start()])
                self._say(match.groupdict(), ends[match.start() : match.end()])
                position = match.end()
            self._give(text[position:limit], ends[position:limit])
            position = max(position, limit)
        begin = len(text) if is_last else max(0, position - _SEEN_CHARS)
        self._text, self._ends, self._position = text[begin:], ends[begin:], max(0, position - begin)
        given, given_ends = "".join(self._given), self._given_ends
        self._given, self._given_ends = [], []
        if is_last:
            self._last = ""
        return given, given_ends

    def _say(self, parts: Parts, ends: Sequence[int]) -> None:
        said = next(read for i, read in enumerate(_READ) if parts[f"kind{i}"] is not None)(parts)
        if parts["to"]:
            said = f"{' ' * (self._last != ' ')}to {said}"
        elif parts["minus"]:
            said = f"-{said}" if self._last.isalnum() else f"minus {said}"
        self._give(said, [ends[len(ends) * n // len(said)] for n in range(len(said))], is_words=True)

    def _give(self, text: str, ends: Sequence[int], *, is_words: bool = False) -> None:
        """Give more text, with a blank before it where the words for something would run into others."""
        if not text:
            return
        if self._last.isalnum() and text[0].isalnum() and (is_words or self._after_words):
            self._given.append(" ")
            self._given_ends.append(self._last_end)
        self._given.append(text)
        self._given_ends += ends
        self._last, self._last_end, self._after_words = text[-1], ends[-1], is_words
