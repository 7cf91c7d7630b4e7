"""Which characters a checkpoint is given for a text: those of NFC, folded to the ones it knows. The text may arrive in
pieces. Knows nothing of tokens.

The rules for folding go by what Unicode says of a character (category, name, compatibility form), so that they also
cover those that nobody thought of. `docs/text.md` has them as a table.
"""

import unicodedata
from collections.abc import Mapping
from functools import lru_cache

import regex
from anyascii import anyascii

from sonorant.engine.checkpoint.config import Characters
from sonorant.engine.prompt.nfc import RAISED
from sonorant.engine.prompt.words import Guess, in_language

GAP = "\0"  # stands between words, in place of something that is not spoken: a blank if there are words at both sides

# How symbols are said, "" = not at all: in English, by which `words.toml` knows what other languages say.
_SAID: Mapping[str, str] = {
    "+": "plus",
    "\N{SECTION SIGN}": "section",
    "\N{DEGREE SIGN}": "degrees",
    "\N{MINUS SIGN}": "minus",
    "\N{PLUS-MINUS SIGN}": "plus or minus",
    "\N{SUPERSCRIPT TWO}": "squared",
    "\N{SUPERSCRIPT THREE}": "cubed",
    "\N{MICRO SIGN}": "micro",
    "\N{MULTIPLICATION SIGN}": "times",
    "\N{DIVISION SIGN}": "divided by",
    "\N{PER MILLE SIGN}": "per mille",
    "\N{NUMERO SIGN}": "number",
    "\N{TRADE MARK SIGN}": "",
    "\N{SERVICE MARK}": "",
    "\N{MUSIC FLAT SIGN}": "flat",
    "\N{MUSIC SHARP SIGN}": "sharp",
    "\N{INFINITY}": "infinity",
    "\N{SQUARE ROOT}": "root",
    "\N{ALMOST EQUAL TO}": "about",
    "\N{NOT EQUAL TO}": "is not",
    "\N{LESS-THAN OR EQUAL TO}": "at most",
    "\N{GREATER-THAN OR EQUAL TO}": "at least",
}
FRACTIONS: Mapping[str, str] = {
    char: unicodedata.name(char).removeprefix("VULGAR FRACTION ").lower() for char in "¼½¾⅐⅑⅒⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞↉"
}
# What an exponent may consist of. Brackets, "+" and "=" are said as they are.
_EXPONENTS = RAISED - frozenset("⁺⁼⁽⁾")
_LOWERED = frozenset("₀₁₂₃₄₅₆₇₈₉")
# Letters of Greek that are units behind a number.
_UNITS: Mapping[str, str] = {"\N{GREEK SMALL LETTER MU}": "micro", "\N{GREEK CAPITAL LETTER OMEGA}": "ohm"}
_UNHEARD = frozenset(("Cc", "Cf", "Cn", "Co", "Cs"))  # control, format, unassigned, private use, surrogates
_QUOTES = ("QUOTATION MARK", "APOSTROPHE", "PRIME", "ACUTE ACCENT", "CORNER BRACKET", "TURNED COMMA")
_HYPHENS = ("HYPHEN", "EN DASH", "FIGURE DASH")
_UNSPOKEN = ("INVERTED ", "BULLET", "MIDDLE DOT", "DAGGER")
_PUNCTUATION = frozenset(("Pc", "Pe", "Pf", "Pi", "Po", "Ps", "Sm"))
_STOPS = frozenset(".,;:!?")
_RUNS: Mapping[str, int] = dict.fromkeys(_STOPS, 3) | {"-": 2}  # how many of such in a row prose has
_POINTS = frozenset(".,")  # within numbers
_ENDS = _STOPS | frozenset("%")  # stand at the end of a word, as letters and digits do
# "1st", "2nd", "3rd", "4th", "1990s", "1er", "3ª", "20h": other letters behind a number are a word, as in "5kg".
_ORDINALS: Mapping[Characters, str] = {"ascii": "srnt", "western": "srntehºª"}
_SIGNS = _STOPS | frozenset("'\"-%@")
# Signs of ASCII that no prose has: what they mean, where the characters around them, and blanks, are such.
_MEANINGS: Mapping[str, tuple[str, str]] = {
    "&": (r".*", "and"),
    "&&": (r".*", "and"),
    "||": (r"[\w)] ?\|\| ?[\w!(]", "or"),
    "_": (r"[^\W_]_[^\W_]", "underscore"),
    "^": (r"[\w)]\^[\w(−-]", "to the"),
    "**": (r"\d( ?)\*\*\1\d", "to the"),
    "*": (r"\d( ?)\*\1\d", "times"),
    "/": (r"\d/\d", "slash"),
    "~": (r".*~[\d$]", "about"),
    "#": (r".*#\d", "number"),
    "=": (r"\S ?= ?\S", "equals"),
    "==": (r"\S ?== ?\S", "equals"),
    "<": (r"\d<\d|[\w)] < [\w$.(-]", "less than"),
    ">": (r"\d>\d|[\w)] > [a-z\d$.(-]", "more than"),  # not "Settings > Privacy"
    "<=": (r"[\w)]( ?)<=\1[\w$.(-]", "at most"),
    ">=": (r"[\w)]( ?)>=\1[\w$.(-]", "at least"),
}
# Beside those of which Unicode says it. What looks like a sign, such as an arrow, seldom means it.
_FORMS: Mapping[str, str] = {"∗": "*", "⁄": "/", "∕": "/", "∼": "~", "≡": "="}
_MAX_RUN = max(map(len, _MEANINGS)) + 1  # as many as tell a run from a longer one
_BETWEEN = frozenset("".join(_MEANINGS))
_NO_PROSE = _BETWEEN | frozenset("()+[\\]`{}")
# What is given as it is. Of "western" what at least 25 of the 62,000 sentences of the training have.
_ASCII = frozenset(map(chr, range(0x20, 0x7F))) - _NO_PROSE
_KEPT: Mapping[Characters, frozenset[str]] = {
    "ascii": _ASCII,
    "western": _ASCII | frozenset("áàéèíìñóòúùüÁÉÈÓ¿¡«»º€"),
}
# What stands in for others in that one: small letters for capitals
_NEAREST: Mapping[str, str] = {char.upper(): char for char in "àíìñòúùü"} | {"ª": "º"}

# Letters and digits beyond ASCII, with their vowel signs and accents. A Chinese character is a word of its own.
_WORD = regex.compile(r"\p{Han}|(?:[[\p{L}\p{N}]--[\p{Han}\p{ASCII}]]\p{M}*)+", regex.VERSION1)


def lost_words(text: str) -> list[str]:
    """Return the words of a text of which no letter or digit is given. Signs that stand beside letters are no words."""
    words = () if text.isascii() else _WORD.findall(unicodedata.normalize("NFC", text))
    return [word for word in words if _is_more_than_signs(word) and not gives_letters(word)]


def gives_letters(text: str) -> bool:
    """Whether a letter or a digit is given for some character of a text in NFC."""
    return any(each.isalnum() for char in text for each in said(char))


def _is_more_than_signs(word: str) -> bool:
    return any(unicodedata.category(char) not in ("Lm", "Mn", "Mc", "Me") for char in word)


@lru_cache(maxsize=8192)
def said(char: str, characters: Characters = "ascii", language: str = "english") -> str:
    """Return what is given for a character in NFC: characters of a checkpoint that knows these, and GAP, or nothing."""
    if char.isspace():
        return " "
    return char if char in _KEPT[characters] else _folded(char, characters, language)


def _folded(char: str, characters: Characters, language: str) -> str:
    category, name = unicodedata.category(char), unicodedata.name(char, "")
    if category in _UNHEARD:
        return ""
    if char in _SAID:
        return _apart(in_language(_SAID[char], language))
    if char in FRACTIONS:
        return _apart(in_language(FRACTIONS[char], language))
    if characters == "western":
        if char == "—" and language != "english":  # other languages write dialogues with it
            return char
        if char in _NEAREST:
            return _NEAREST[char]
    if category == "Pd":
        return "-" if any(kind in name for kind in _HYPHENS) else " - "
    if (category[0] in "PS" or category == "Lm") and any(quote in name for quote in _QUOTES):
        return '"' if _is_double(name) else "'"
    if (parts := unicodedata.decomposition(char).split()) and parts[0] == "<square>":
        return "".join(said(chr(int(code, 16)), characters, language) for code in parts[1:])
    if category == "Nl" and "ROMAN NUMERAL" in name:
        return _apart(f"{unicodedata.numeric(char):g}")
    plain = unicodedata.normalize("NFKC", char)
    if plain != char:
        if name.startswith("MATHEMATICAL ") and (greek := unicodedata.name(plain[0])).startswith("GREEK "):
            return _apart(in_language(greek.rpartition(" ")[2].lower(), language))
        given = "".join(said(each, characters, language) for each in plain)
        # "a⁶" is not a6, and "①First" is not one word.
        stands_apart = plain[0].isdigit() and not char.isdecimal()
        return _apart(given) if stands_apart else given
    if category[0] in "LMN":
        return _letter(char, category, name)
    is_currency = category == "Sc"
    return (
        _apart(in_language(name.removesuffix(" SIGN").lower(), language))
        if is_currency
        else _sign(char, category, name)
    )


def _apart(given: str) -> str:
    return f"{GAP}{given}{GAP}"


def _is_double(name: str) -> bool:
    is_quotation = "QUOTATION MARK" in name or "CORNER BRACKET" in name
    return "DOUBLE" in name or (is_quotation and "SINGLE" not in name)


def _letter(char: str, category: str, name: str) -> str:
    """Return the Latin letters for a letter, a digit or a mark of any script."""
    given = anyascii(char)
    if category[0] == "M":  # a vowel sign is a letter, an accent is not
        return given if given.isalpha() and not name.startswith("COMBINING ") else ""
    # Romanizations also have signs, such as "`" for a glottal stop and "(|)" for a thousand.
    if category[0] == "N" and not given.isalnum():
        return _apart(f"{unicodedata.numeric(char):g}")
    given = "".join(each for each in given.replace("`", "'") if each.isalnum() or each in " '-")
    if name.startswith("CJK ") or category == "No":  # each is a syllable, or a word; "5❶" is not 51
        return _apart(given.lower())
    return given.lower() if name.startswith("HANGUL ") else given


def _sign(char: str, category: str, name: str) -> str:
    """Return the nearest sign of ASCII that is spoken or makes a pause."""
    given = anyascii(char).strip()
    if category == "So" and "LETTER" in name and "REGIONAL INDICATOR" not in name:  # in squares and circles
        return given if given.isalnum() else GAP
    if name.endswith(("DECIMAL SEPARATOR", "THOUSANDS SEPARATOR")):
        return "." if "DECIMAL" in name else ","
    if "DANDA" in name:
        return _apart(".")
    if "ELLIPSIS" in name:
        return "..."
    is_silent = any(kind in name for kind in _UNSPOKEN) or category not in _PUNCTUATION
    if is_silent or not given or not set(given) <= _SIGNS:
        return GAP
    return given + GAP if set(given) <= _STOPS and category != "Sm" else given


@lru_cache(maxsize=4096)
def _as_sign(char: str) -> str:
    """Return the sign of ASCII that this one is a form of, such as "=" in full width, or the character itself."""
    sign = _FORMS.get(char) or unicodedata.normalize("NFKC", char)
    return sign if sign in _BETWEEN else char


class AsIs:
    """Stands in for `FoldedStream` where a checkpoint knows all characters."""

    def push(self, text: str) -> str:
        return text

    def take(self, char: str, following: str) -> str:
        return char


class FoldedStream:
    """Folds NFC text that comes in pieces to what a checkpoint knows. However `NfcStream` cuts it, the results, joined,
    are the same."""

    def __init__(self, characters: Characters, language: str | None, *, keeps_marks: bool = False) -> None:
        """`language`: of the words for signs; None: that of the text before a sign. `keeps_marks`: hyphens
        between numbers, and "/" between words and numbers."""
        self._characters = characters
        self._keeps_marks = keeps_marks
        self._language = language
        self._guess = Guess()
        self._kept = _KEPT[characters]
        self._before = self._last = ""  # the last characters that came out
        self._num_letters = 0  # letters that came out last, in a row
        self._num_marks = 0  # in a row, the last of which came out last
        self._gap = False
        self._after_number = False  # but for blanks
        self._was_raised = self._was_lowered = False  # the last character of the text
        self._lead: str | None = ""  # signs before the first word, which are no beginning of prose; None after it
        self._after_bracket = self._after_hyphen = False  # a hyphen that is held: "10-12" is "10 12", "5-inch" is not
        self._run = ""  # signs at the end of the text, blanks apart; what they mean shows in what follows
        self._place = ""  # the character before them, if any, they and the blanks at both sides

    def push(self, text: str) -> str:
        """Take more text and return what it is folded to, with one blank in place of several."""
        return "".join(map(self.take, text, f"{text[1:]} "))

    def take(self, char: str, following: str) -> str:
        """Take one character of the text. `following`: the next one; another one or none will do if `char` is no
        raised digit."""
        given = ""
        sign, meaning = char if char.isascii() else _as_sign(char), ""
        if self._run or sign in _BETWEEN:
            meaning = self._meaning(sign)
        else:
            # What begins a line, such as the mark of a quotation, is not between two words.
            self._place = "" if sign == "\n" else f"{self._place.strip()} " if sign.isspace() else sign
        for each in meaning + self._said(char, following):
            if each == GAP:
                self._gap = True
                continue
            if self._lead is not None:
                if each in _STOPS or each == "-":
                    self._lead = (self._lead + each)[:_MAX_RUN]
                    continue
                if each.isalnum():
                    given += self._lead if each.isdecimal() and self._lead in ("-", ".", "-.") else ""
                    self._lead = None
            if each == "-" and self._last.isdecimal() and not self._keeps_marks:
                self._after_hyphen = True
                continue
            if self._after_hyphen:
                self._after_hyphen = False
                if each.isdecimal():
                    self._gap = True
                else:
                    given, self._last, self._gap = f"{given}-", "-", False
            self._num_marks = self._num_marks + 1 if each in _RUNS and self._last in _RUNS else 1
            if self._num_marks > _RUNS.get(each, self._num_marks):
                continue
            if each in _RUNS and f"{self._before}{self._last}" == f"{each} ":  # ". . ."
                continue
            if self._last.isdecimal() and each.isalpha() and each not in _ORDINALS[self._characters]:
                self._gap = True
            if self._gap and each.isalnum() and (self._last.isalnum() or self._last in _ENDS):
                given += " "
                self._num_letters = 0
            self._gap = False
            if each == " " == self._last:
                continue
            given += each
            self._before, self._last = self._last, each
            self._num_letters = self._num_letters + 1 if each.isalpha() else 0
        self._after_bracket = char == ")"
        return given

    def _meaning(self, sign: str) -> str:
        """Take a sign, or the character after some; return what is said for them, "" for those that mean nothing."""
        if sign.isspace():
            self._place += " " * (not self._place.endswith(" "))
            return ""
        if sign in _BETWEEN:
            if self._run and self._place.endswith(" "):  # "* *"
                self._run, self._place = "", " "
            if len(self._run) < _MAX_RUN:
                self._run += sign
                self._place += sign
            return ""
        run, (pattern, words) = self._run, _MEANINGS.get(self._run, ("", ""))
        if run == "/" and self._keeps_marks:
            pattern, words = r"\S/\S", "/"
        elif run == "=" and self._place.startswith("!"):
            pattern, words = r"!= ?\S", "is not"
        is_meant = words and regex.fullmatch(pattern, self._place + sign)
        self._run, self._place = "", sign
        if not is_meant:
            return ""
        return run if (meant := self._words(words)) == run else f"{GAP}{meant} "

    def _said(self, char: str, following: str) -> str:
        if self._language is None:
            self._guess.take(char)
        unit = _UNITS.get(char) if self._after_number else None
        self._after_number = char.isdecimal() or (self._after_number and char.isspace())
        was_lowered, self._was_lowered = self._was_lowered, char in _LOWERED
        if was_lowered != self._was_lowered:
            self._gap = True  # "H₂O" is "H 2 O", "log₁₀" is "log 10"
        if self._was_lowered:
            return self._plain(char)
        is_ordinal = char == "ⁿ" and unicodedata.category(following or " ") == "Lm"  # "2ⁿᵈ"
        was_raised, self._was_raised = self._was_raised, char in RAISED and not is_ordinal
        if self._was_raised:
            said_raised = self._raised(char, following) if not was_raised else self._plain(char)
            return said_raised if following in RAISED else f"{said_raised}{GAP}"
        if char in FRACTIONS and self._last.isdecimal():
            return f"{GAP}{self._words('and')} {self._words(FRACTIONS[char])}{GAP}"
        if char == "°" and self._is_ordinal():
            return "º"
        if char == "#" and self._num_letters == 1 and self._last.isupper():  # "C#"
            return _apart("sharp")
        return self._alone(char) if unit is None else _apart(self._words(unit))

    def _is_ordinal(self) -> bool:
        """Whether the sign for degrees stands in for "º" here: in "n° 5", and in "1°", which is a day or a place."""
        if self._spoken == "english":
            return False
        is_one = self._last == "1" and not (self._before.isdecimal() or self._before in _POINTS)
        return is_one or (self._last in ("n", "N") and self._num_letters == 1)

    def _raised(self, char: str, following: str) -> str:
        """Return how the first of some raised characters is said: "10²³", "x²", "m⁻¹", "Ca²⁺", "note¹"."""
        is_base = self._last.isdecimal() or self._after_bracket or self._num_letters == 1
        if char == "⁻":
            is_base = is_base or self._last.isalpha()
            return f"{GAP}{self._words('to the minus')} " if is_base and following in _EXPONENTS else "-"
        if following not in RAISED and (char in _SAID or char == "¹"):
            return self._alone(char)
        is_charge = char.isdigit() and following in ("⁺", "⁻")
        is_power = is_base and char in _EXPONENTS and not is_charge
        plain = self._plain(char)
        return f"{GAP}{self._words('to the')} {plain}" if is_power else f"{GAP}{plain}"

    def _plain(self, char: str) -> str:
        """Return what is said for a character as if it stood on the line."""
        return "".join(map(self._alone, unicodedata.normalize("NFKC", char)))

    def _alone(self, char: str) -> str:
        return char if char in self._kept else said(char, self._characters, self._spoken)

    def _words(self, words: str) -> str:
        return in_language(words, self._spoken)

    @property
    def _spoken(self) -> str:
        """The language of the words."""
        return self._language or self._guess.language
