"""Numbers, and letters that are said one by one, in English words. `docs/text.md` has a table of what becomes what, and
`english.toml` the words."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import regex
from num2words import num2words

from sonorant.engine.prompt.rules import ROMAN, SEEN_CHARS, Parts, Rules, one_of

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
_SCALES: Mapping[str, str] = {"k": "thousand", "m": "million", "bn": "billion", "b": "billion"}
_MAX_DIGITS = 15  # of a number that is read as one

_WHOLE = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)"
_SCALE = "(?i:thousand|million|billion|trillion|k|m|bn|b)"
_UNIT = one_of(_UNITS)
_NAME = one_of([*_NAMES, *_NAMES.values()])
_MONTH = one_of([*_MONTHS, *(short for short, name in _NAMES.items() if name in _MONTHS)])
_DAY = r"(?:3[01]|[12]\d|0?[1-9])"
_MONTH_OF_YEAR = r"(?:1[0-2]|0?[1-9])"
# Said letter by letter: words, but for "IT" among others in capitals, and single letters, but for "a" and "I".
_TITLES, _KNOWN = one_of(_WORDS["titles"]), one_of(_WORDS["spelled"])
_SPELLED = (
    rf"(?<![\p{{L}}'])(?!(?:{_TITLES})\b)(?:[B-DF-HJ-NP-TV-XZ]{{2,5}}|{_KNOWN}|"
    rf"(?<=[a-z], )[A-Z]{{2}}(?! [A-Z])|IT(?<!\b[A-Z]{{2,9}} IT)(?! [A-Z]{{2}})|[A-Z]{{1,3}}(?=\d)|"
    rf"(?!(?:{one_of(_WORDS['two'])}) )[A-Z]{{2}}(?<!\b[A-Z]{{2,9}} [A-Z]{{2}})(?=[ -]\d))|"
    r"(?<![\p{L}'.])[B-HJ-Z](?![\p{Ll}'])|(?<![\p{L}'.])[b-hj-z](?![\p{L}'.])"
)
_DAYS = one_of(name for both in _NAMES.items() if both[1] in _WORDS["days"] for name in both)
# Before two numbers that are a month and a day, if 9/11 and halves are not meant
_DATED = rf"(?:on|due|since|until|before|after|by(?! [1-9]/[1-9](?!\d))|{_DAYS})[.,]?(?! 9/11)"
_SHORT_BEFORE = one_of(set(_BEFORE) - {"Sun"})  # "in the Sun."
_ALWAYS_SHORT = one_of(short for short in _BEFORE if short.islower() or short in _WORDS["no_words"])
_SHORT_BEHIND = one_of(_TABLES["behind"])
_STOP = r"(?:\.(?!\.)(?P<stop>(?=$| [A-Z\d]))?)?"  # of an abbreviation, which may be that of its sentence
# What is no unit behind a number: an apostrophe or a quotation mark that ends what one began, and the "s" of "747s".
_END = r"""(?<=[ -]|(?<!\w)'[^']{0,20})'|(?<=[ -]|(?<!\d)"[^"]{0,20})"|(?<=\d{3}|[A-Za-z-]\d+)s\b"""

# What may be a number yet, or several with blanks between them, and the word behind, which may belong to it; or a word.
# What is behind an abbreviation shows what it is.
_US = r"(?<!\p{L})US\$"
_COINS = rf"\b(?:{one_of(money for money in _MONEY if money.isalpha())}) "
_DIGITS = (
    rf"(?:{_US}|(?:{_COINS})?-?(?:[$€]|(?<![\w.])\.)?)\d+(?:(?:[.,:/']|-[$€]?| (?:- )?)\d+)*"
    r"(?:[.,:/']|-[$€]?| (?:- ?)?)?"
)
_WORD = r"\p{L}+(?:\.\p{L}+)*\.?"
_BEGUN = one_of([*_SHORT, *_MONTHS, *(unit.split()[0] for unit in _UNITS), *_WAYS, "IT", "No", "St", *_MONEY])
_GROWING = (
    rf"\bhttps?: ?|(?:- )?{_DIGITS}(?:[%\"]|(?!{_COINS}\d){_WORD})?|-?[$€]|{_US}|-\.|@|- ?|/\p{{L}}*|"
    rf"\b(?:{_NAME})(?: ?- ?\p{{L}}*| )|{_WORD}|(?:\.\p{{L}}+)*\.?"
)


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
    number = str(ROMAN.index(parts["roman"]))
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


_KINDS: Mapping[str, Callable[[Parts], str]] = {
    rf"(?P<money>[$€]|{_US}|{_COINS})(?:(?P<least>{_WHOLE}(?:\.\d+)?)-(?=\d))?"
    rf"(?P<amount>{_WHOLE}(?:\.\d+)?)(?: ?(?P<scale>{_SCALE})\b)?": _price,
    r"(?P<hour>\d{1,2}):(?P<minute>[0-5]\d)(?::(?P<seconds>[0-5]\d))?(?![\d:])(?P<half>(?= ?(?i:[ap]\.?m)\b))?": _time,
    r"(?P<year>\d{4})[-/](?P<month>0[1-9]|1[0-2])[-/](?P<day>0[1-9]|[12]\d|3[01])(?!-?\d|[.,:]\d)": _date,
    rf"(?:(?P<month>{_MONTH_OF_YEAR})/(?P<day>{_DAY})|(?P<day>{_DAY})/(?P<month>{_MONTH_OF_YEAR}))"
    rf"(?:/(?P<year>\d{{4}}|\d\d)|(?<=\b{_DATED} [\d/]{{3,5}}))(?![/\d])|"
    rf"(?<![\d.])(?P<day>{_DAY})\.(?P<month>{_MONTH_OF_YEAR})\.(?P<year>(?:19|20)\d\d)(?!\.?\d)": _date,
    rf"(?P<day>{_DAY}) (?P<month>{_MONTH})\b": _date,
    rf"(?<=\b(?:{_MONTH})\.? (?:\d{{1,2}}-)?)(?P<ordinal>{_DAY})(?![\d%]|[.,:]\d|st|nd|rd|th)": _ordinal,
    rf"(?:(?P<whole>\d+) (?=\d+/))?(?!(?:{one_of(_WORDS['pairs'])})(?!\d)|0\d|\d{{4}}/\d\d(?!\d))"
    r"(?<![\d/])(?P<above>\d+(?:\.\d+)?)/(?P<below>[1-9]\d*)(?!/)": _fraction,
    rf"(?P<groups>\d+(?:-\d+){{2,}}|(?<=plus )\d+(?:[ -]\d+){{2,}}|\d{{2,}}(?:[ -]\d+)*[ -]0\d+(?:[ -]\d+)*|"
    rf"(?<=\b(?:{one_of(_TABLES['words']['coded'].split(', '))})(?: is|:)? )\d{{4,}}|"
    r"(?:\d{1,3} )?\d{3}[ -](?:\d{3}[ -])?\d{4}|\d{3}\.\d{3}\.\d{4})(?! ?\d|[.,:]\d)": _groups,
    r"(?P<ordinal>\d{1,15})(?:st|nd|rd|th)\b": _ordinal,
    r"(?<!\b(?:after|every|for|than|within) )(?P<decade>\d0|\d{3}0)s\b": _decade,
    r"(?<=\d):(?=\d)": lambda parts: "to",
    rf"(?:(?P<version>\d+(?:\.\d+){{2,}})|(?P<number>{_WHOLE}(?:\.\d+)?|(?<![\w.])\.\d+))(?P<percent> ?%)?": _plain,
    rf"\b(?P<from>{_NAME}) ?- ?(?P<until>{_NAME})\b": (
        lambda parts: " to ".join(_NAMES.get(parts[name], parts[name]) for name in ("from", "until"))
    ),
    r"(?<=\d )-(?= \d[\d. -]* equals\b)": lambda parts: "minus",
    r"(?<=(?:(?i:[ap]\.?m)\.?|:\d\d|[$€]\d{1,9}(?:\.\d\d)?) )-(?= [$€\d])": lambda parts: "to",
    r"(?<=\d )(?P<way>[NSE]|W(?=\.))\b\.?(?= [A-Z\d])": lambda parts: _WAYS[parts["way"]],
    r"(?<=\d['\"]? ?)x(?= ?\d)": lambda parts: "by",
    rf"(?<=\d[ -]?)(?P<one>(?<=(?<![\d.,])1 ?|-))?(?!{_END})(?P<unit>{_UNIT})(?:(?<=[a-z])s)?(?!\p{{L}}){_STOP}": _unit,
    rf"(?<=(?:\d ?|/)(?:{_UNIT})s?|\d)/(?:(?P<per>{_UNIT})(?!\p{{L}})|(?=[a-z]{{2}}))": (
        lambda parts: f"per {_UNITS.get(parts['per'], '').partition('|')[0]}"
    ),
    r"\bNo\.(?= \d)": lambda parts: "number",
    rf"\b(?P<short>{_SHORT_BEFORE})(?:\.|(?= ?\d))|\b(?P<short>{_ALWAYS_SHORT})\b|\b(?P<short>Wed|Sat)(?=,)": _short,
    rf"\b(?P<short>{_SHORT_BEHIND})\b{_STOP}": _short,
    rf"(?<=\d[\p{{L}} ]{{0,{SEEN_CHARS - 3}}}\p{{L}} |[a-z,] (?!Fort|Lake|Mount|Port)[A-Z][a-z]{{1,14}} )St\b{_STOP}|"
    r"\bSt\.(?P<stop>$)?(?! [A-Z])": lambda parts: "Street" + _stop(parts),
    r"\bSt\.": lambda parts: "Saint",
    r"(?<!\p{L})(?P<letters>[A-Z](?:\.[A-Z])+)\b(?:\.(?P<stop>$)?)?": _letters,
    r"\bv(?=\d)": lambda parts: "version",
    rf"(?:(?<=\b(?:{one_of(_WORDS['numbered'])}) )|(?<=\b(?P<king>{one_of(_WORDS['kings'])}) )(?!I\b)|"
    rf"(?<=\b[A-Z][a-z]{{1,14}} )(?!IV\b)(?=[IVX]{{2}}|L[IVX]))(?!L\b)"
    rf"(?P<roman>{one_of(ROMAN[1:])})\b": _roman,
    rf"(?P<letters>{_SPELLED})(?P<plural>s?)(?!\p{{L}})": _letters,
    r"(?<=\.)(?P<letters>[b-df-hj-np-tv-z]{2,4})(?!\p{L})": _letters,
    r"\bhttps?: ?|\bwww\.(?=\w)": lambda parts: "",
    r"@": lambda parts: "at",
    r"(?<=\.[a-z]{2,6}(?:/[^ ]{0,16})?)/(?=\w)": lambda parts: "slash",
    r"/": lambda parts: " ",
    r"(?<=[a-z\d])\.(?=[a-z]{2})": lambda parts: "dot",
}
ENGLISH = Rules(
    _KINDS,
    growing=_GROWING,
    begun=rf"{_BEGUN}|[A-Z]{{2}}",
    ends=r"\d(?:st|nd|rd|th|s|%| ?[ap]\.?m\.?)?",
    minus="minus",
    to="to",
)


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
