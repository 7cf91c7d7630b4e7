"""Numbers in words of Spanish and Italian, with what stands beside them: signs, units, prices, times and dates; also
letters that are said one by one, abbreviations and addresses. What differs between the languages is in their tables,
such as `spanish.toml`; `docs/text.md` has a table of what becomes what."""

import tomllib
import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import regex
from num2words import num2words

from sonorant.engine.prompt.characters import FRACTIONS
from sonorant.engine.prompt.rules import ROMAN, Parts, Rules, one_of
from sonorant.engine.prompt.words import in_language

_MAX_DIGITS = 15  # of a number that is read as one

_DAY = r"(?:3[01]|[12]\d|0?[1-9])"
_MONTH = r"(?:1[0-2]|0?[1-9])"
# "1.234", "12 000 000"; "1,234.50" and "1,234,567" as in English, which have another meaning nowhere
_WHOLE = r"(?:\d{1,3}(?:[ .]\d{3})+(?![\d]|[ .]\d)|\d{1,3}(?:,\d{3})+(?=\.\d)|\d{1,3}(?:,\d{3}){2,}(?!\d)|\d+)"
_NUMBER = rf"{_WHOLE}(?:[.,]\d+)?"
_NOUN = r"(?=(?: (?P<noun>\p{L}+))?)"
_CURRENCY = r"(?:(?<!\p{L})R\$|[$€])"

# What may be a number yet, or several with blanks between them, and the word or sign behind, which may belong to it; or
# a word. All that something begins with must match, too, or it would be given before the rest has come.
_DIGITS = rf"(?:-?{_CURRENCY} ?)?-?\d+(?:(?:[.,:/]|-{_CURRENCY}?| (?:[h€$-] )?|h)\d+)*"
_BEHIND = (
    rf" ?{_CURRENCY}(?: (?:\d\d?(?=$|[ .,;:!?]))?)?|\.?º(?: \p{{L}}*)?|\p{{L}}+(?: \p{{L}}*|/\p{{L}}*)?|[.,:/]|"
    rf"-(?:{_CURRENCY}|R)?| ?%| (?:- ?|h |[adp]\.(?: [Cm]?)?\p{{L}}*(?:\.\p{{L}}*)*|"
    r"\p{L}+(?:/\p{L}*|(?:\.\p{L}*)+)?)?"
)
_SHORT = r"EE\. U{0,2}|[aApPdD]\. (?:[cCmM]|[eE][jJsS]?)?"  # with a blank between its parts
_WORD = rf"\bhttps?:[ /]*|(?:{_SHORT}|\p{{L}}+)(?:\.\p{{L}}*)*|(?:\.\p{{L}}*)+"
_GROWING = rf"{_DIGITS}(?:{_BEHIND})?|-?(?:{_CURRENCY} ?-?|R(?!\p{{L}}))|[nN]\.?º?(?!\p{{L}})|{_WORD}|[@/-]"


class _Romance:
    """Says numbers in one language."""

    def __init__(self, language: str) -> None:
        file = Path(__file__).with_name(f"{language}.toml")
        self._table: Mapping[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
        self._words: Mapping[str, str] = self._table["words"]
        self._language = language
        self._months, self._scales = self._words["months"].split(), self._words["scales"].split()
        self._money = {sign: words.split("|") for sign, words in self._table["money"].items()}
        self._signs = {name: sign for sign, (one, several, *_) in self._money.items() for name in (sign, one, several)}
        self._letters = dict(zip(ascii_uppercase, self._words["letters"].split(), strict=True))
        self._short: Mapping[str, str] = self._table["short"] | self._table["last"]
        self._units: Mapping[str, list[str]] = {unit: words.split("|") for unit, words in self._table["units"].items()}
        self._fractions = {
            unicodedata.normalize("NFKC", char).replace("⁄", "/"): in_language(name, language)
            for char, name in FRACTIONS.items()
        }
        self.rules = Rules(
            self._kinds(),
            growing=_GROWING,
            begun=f"{one_of([*self._scales, *(u.split()[0] for u in self._units)])}|(?i:{_spelling(self._short)})",
            ends=rf"\d(?: ?%|\.?º| ?{_CURRENCY})?",
            minus=self._words["minus"],
            to=self._words["to"],
        )

    def _kinds(self) -> Mapping[str, Callable[[Parts], str]]:
        scale = rf"(?: (?P<scale>{one_of(self._scales)})\b)"
        signs = rf"(?P<money>{_CURRENCY}|{one_of(self._signs)})(?!\p{{L}})"
        minute = r"(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d))?(?![\d:])"
        short, last = map(_spelling, (self._table["short"], self._table["last"]))
        spelled = rf"[B-DF-HJ-NP-TV-XZ]{{1,5}}|{one_of(self._words['spelled'].split())}"
        return {
            r"\b[nN]\.?º": lambda parts: in_language("number", self._language),
            rf"(?P<money>{_CURRENCY}) ?(?P<amount>{_NUMBER}){scale}?": self._price,
            rf"(?P<amount>{_NUMBER}){scale} (?P<money>{_CURRENCY})": self._price,
            rf"(?P<amount>{_NUMBER}) ?{signs}(?: (?P<cents>\d\d)(?!\d))?": self._price,
            r"(?P<year>\d{4})-(?P<month>0[1-9]|1[0-2])-(?P<day>0[1-9]|[12]\d|3[01])(?!-?\d|[.,:]\d)": self._date,
            rf"(?P<day>{_DAY})(?P<between>[/.-])(?P<month>{_MONTH})(?P=between)(?P<year>\d{{4}}|\d\d)(?![/.-]?\d)": (
                self._date
            ),
            r"(?P<day>0[1-9]|[12]\d|3[01])/(?P<month>0[1-9]|1[0-2])(?![/.-]?\d)": self._date,
            rf"(?P<day>1)(?= (?:{one_of(self._months)})\b)": self._day,
            rf"(?P<hour>\d{{1,2}})(?::| ?h ?){minute}(?:h\b)?": self._time,
            rf"(?<={self._words['pointed_time']})(?P<hour>\d{{1,2}})\.{minute}": self._time,
            r"(?P<hour>\d{1,2}) ?h(?!\p{L}|\d)": self._hour,
            r"(?:(?P<whole>\d+) )?(?P<fraction>\d+/\d+)": self._fraction,
            rf"(?P<ordinal>\d{{1,3}})(?:{self._words['place']})(?![\p{{L}}\d]){_NOUN}": self._ordinal,
            r"(?P<groups>\d{3} \d{3} \d{3}|(?!\d{1,3}(?: \d{3})+(?! ?\d))\d+(?:[ -]\d{2,}){2,}|"
            r"0\d(?:\.\d\d){2,}|(?!(?:1\d|20)\d\d-(?:1\d|20)\d\d)\d{3,5}-\d{4})(?! ?\d|[.,:]\d)": self._groups,
            r"(?P<version>(?!\d{1,3}(?:\.\d{3})+(?!\.?\d))\d+(?:\.\d+){2,})": self._version,
            r"(?<=\d):(?=\d)": lambda parts: self._words["to"],
            rf"(?<![\p{{L}}.])(?i:(?P<short>{short}))(?!\p{{L}})": self._shortened,
            rf"(?<![\p{{L}}.])(?i:(?P<short>{last}))(?P<stop>(?=$| \p{{Lu}}))?(?!\p{{L}})": self._shortened,
            rf"(?P<counted>(?<=\b(?:{self._words['counted']}) ))?(?P<feminine>(?<=\b[Ll]a ))?"
            rf"(?<![\p{{L}}'])(?=[IVX]{{2}})(?P<roman>{one_of(ROMAN[1:])})(?![\p{{L}}'])": self._roman,
            rf"(?<![\p{{L}}\d'.])(?P<letters>{spelled})(?![\p{{L}}'])": self._spelled,
            r"\bhttps?:[ /]*|\bwww\.(?=\w)": lambda parts: "",
            r"@": lambda parts: self._words["@"],
            r"(?<=[a-z])\.(?=[a-z]{2})": lambda parts: self._words["."],
            r"/": lambda parts: " ",
            rf"(?P<number>{_NUMBER})(?:(?P<percent> ?%)|{_NOUN})": self._plain,
            rf"(?<=\d ?)(?P<one>(?<=(?<![\d.,])1 ?))?(?P<unit>{one_of(self._units)})(?!\p{{L}})": self._unit,
        }

    def _price(self, parts: Parts) -> str:
        amount, scale = parts["amount"], parts["scale"]
        one, several, hundredth, hundredths = self._money[self._signs[parts["money"]]]
        whole, _, rest = self._split(amount)
        if scale:
            return f"{self._number(amount)} {scale} {self._of(several)}"
        if rest and len(rest) != 2:
            return f"{self._number(amount)} {several}"
        cents = parts["cents"] or rest or "0"
        said = self._counted(whole, one, several)
        if not int(cents):
            return said
        part = self._counted(cents, hundredth, hundredths)
        return self._words["price"].format(whole=said, part=part) if int(whole) else part

    def _time(self, parts: Parts) -> str:
        said = self._cardinal(parts["hour"], self._words["hour"].split("|")[1])
        if int(parts["minute"]):
            said = self._words["time"].format(hour=said, minute=self._cardinal(parts["minute"]))
        return f"{said} {self._cardinal(parts['second'])}" if parts["second"] else said

    def _hour(self, parts: Parts) -> str:
        return self._counted(parts["hour"], *self._words["hour"].split("|"))

    def _date(self, parts: Parts) -> str:
        form, year = self._words["date"], parts["year"]
        if year is None:
            form, year = form.partition("{month}")[0] + "{month}", ""
        elif len(year) == 2:
            year = f"20{year}"
        return form.format(
            day=self._day(parts), month=self._months[int(parts["month"]) - 1], year=year and self._cardinal(year)
        )

    def _day(self, parts: Parts) -> str:
        return self._words["first"] if int(parts["day"]) == 1 else self._cardinal(parts["day"])

    def _fraction(self, parts: Parts) -> str:
        said = self._fractions.get(parts["fraction"])
        if said and parts["whole"]:
            said = f"{in_language('and', self._language)} {said}"
        said = said or " ".join(map(self._cardinal, parts["fraction"].split("/")))  # "24/7"
        return f"{self._cardinal(parts['whole'])} {said}" if parts["whole"] else said

    def _ordinal(self, parts: Parts) -> str:
        words: str = num2words(int(parts["ordinal"]), to="ordinal", lang=self._words["code"])
        return self._agreeing(words, "ordinal", parts["noun"])

    def _roman(self, parts: Parts) -> str:
        number = ROMAN.index(parts["roman"])
        if parts["counted"] is not None or number > int(self._words["last_ordinal"]):
            return self._cardinal(str(number))
        feminine = self._words["hour"].partition("|")[0] if parts["feminine"] is not None else None
        return self._ordinal({"ordinal": number, "noun": feminine})

    def _shortened(self, parts: Parts) -> str:
        return self._short[parts["short"].replace(" ", "").lower()] + "." * (parts["stop"] is not None)

    def _spelled(self, parts: Parts) -> str:
        return " ".join(self._letters[letter].replace("-", " ") for letter in parts["letters"])

    def _groups(self, parts: Parts) -> str:
        """Say digits in groups: those of two are a number, others are said one by one."""
        groups = regex.split("[ .-]", parts["groups"])
        return ", ".join(
            self._one_by_one(each) if len(each) > 2 or each[0] == "0" else self._cardinal(each) for each in groups
        )

    def _version(self, parts: Parts) -> str:
        return f" {self._words['.']} ".join(map(self._cardinal, parts["version"].split(".")))

    def _plain(self, parts: Parts) -> str:
        said = self._number(parts["number"], parts["noun"])
        if parts["percent"]:
            return f"{said} {self._words['percent']}"
        return f"{said} {self._words['of']}" if self._is_noun(parts["noun"]) and self._is_scale(said) else said

    def _unit(self, parts: Parts) -> str:
        return self._units[parts["unit"]][parts["one"] is None]

    def _split(self, number: str) -> tuple[str, str, str]:
        """Return the digits before and behind the mark of its fraction, which is between them, if it has one."""
        parts = regex.fullmatch(rf"({_WHOLE})(?:([.,])(\d+))?", number)
        whole, mark, rest = parts.groups(default="") if parts else (number, "", "")
        return regex.sub("[ .,]", "", whole), mark, rest

    def _number(self, number: str, noun: str | None = None) -> str:
        """Say a number without a sign; what is no quantity digit by digit."""
        whole, mark, rest = self._split(number)
        is_code = len(whole) > 4 and number.startswith(whole) and not whole.endswith("00")
        if is_code or (len(whole) > 1 and whole[0] == "0"):
            said = self._one_by_one(whole)
        else:
            said = self._cardinal(whole, None if mark else noun)
        if not mark:
            return said
        zeros = len(rest) - len(rest.lstrip("0"))
        digits = [*rest] if len(rest) - zeros > 2 else [*rest[:zeros], rest[zeros:]]
        return " ".join([said, self._words[mark], *map(self._cardinal, filter(None, digits))])

    def _counted(self, digits: str, one: str, several: str) -> str:
        noun = one if int(digits) == 1 else several
        said = self._cardinal(digits, noun)
        return f"{said} {self._of(noun) if self._is_scale(said) else noun}"

    def _of(self, noun: str) -> str:
        return f"{self._words['of']} {noun}"

    def _is_noun(self, word: str | None) -> bool:
        return word is not None and not regex.fullmatch(self._words["no_noun"], word)

    def _is_scale(self, words: str) -> bool:
        return words.rpartition(" ")[2] in self._scales

    def _cardinal(self, digits: str, noun: str | None = None) -> str:
        if len(digits) > _MAX_DIGITS:
            return self._one_by_one(digits)
        words: str = num2words(int(digits), lang=self._words["code"])
        return self._agreeing(words.replace(",", ""), "cardinal", noun)

    def _one_by_one(self, digits: str) -> str:
        return " ".join(map(self._cardinal, digits))

    def _agreeing(self, words: str, form: str, noun: str | None) -> str:
        """Return a number as it is said before this word; None: before none."""
        table: Mapping[str, Mapping[str, str]] = self._table[form]
        changes = dict(table["always"])
        noun = self._units[noun][1] if noun and noun in self._units else noun
        if noun and self._is_noun(noun):
            changes |= table["feminine" if regex.fullmatch(self._words["feminine"], noun) else "masculine"]
        for pattern, change in changes.items():
            words = regex.sub(pattern, change, words)
        return words


def _spelling(short: Mapping[str, str]) -> str:
    """A pattern of abbreviations, between whose parts there may be blanks."""
    return "|".join(regex.escape(each).replace(r"\.", r"\. ?").removesuffix(" ?") for each in short)


ROMANCE: Mapping[str, Rules] = {language: _Romance(language).rules for language in ("spanish", "italian")}
