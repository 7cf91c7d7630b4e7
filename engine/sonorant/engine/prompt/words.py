"""The words for signs in the languages of the included voices (`words.toml`), and which of these a text is in. Pure."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

_TABLES: Mapping[str, Mapping[str, Any]] = tomllib.loads(
    Path(__file__).with_name("words.toml").read_text(encoding="utf-8")
)
_WORDS: Mapping[str, Mapping[str, str]] = {language: table.get("words", {}) for language, table in _TABLES.items()}


def _languages_of(tells: Mapping[str, Iterable[str]]) -> Mapping[str, Sequence[str]]:
    languages: dict[str, list[str]] = {}
    for language, of_language in tells.items():
        for tell in of_language:
            languages.setdefault(tell, []).append(language)
    return languages


# The languages in which a word is frequent, and those that have a character which English has not
_OFTEN = _languages_of({language: table["often"].split() for language, table in _TABLES.items()})
_LETTERS = _languages_of({language: table.get("letters", "") for language, table in _TABLES.items()})
_MAX_WORD_CHARS = max(map(len, _OFTEN)) + 1  # as many as tell a word from a longer one


def in_language(words: str, language: str) -> str:
    """Return what a language says for what English says of a sign; a language that has no table says it in English."""
    return _WORDS.get(language, {}).get(words, words)


class Guess:
    """Which language a text is in, by its frequent words, as far as it has come. How it is cut makes no difference: a
    word counts once it has ended."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(_TABLES, 0)
        self._word = ""
        self._is_first = True

    def take(self, text: str) -> None:
        """Take more of the text."""
        for char in text:
            if char.isalpha():
                if len(self._word) < _MAX_WORD_CHARS:
                    self._word += char
                continue
            told = [*_LETTERS.get(char, ())]
            if self._word:
                # In texts of all languages people and places keep their letters, and single capitals are letters.
                if self._is_first or self._word[0].islower():
                    told += {language for letter in self._word for language in _LETTERS.get(letter, ())}
                if self._is_first or len(self._word) > 1 or self._word.islower():
                    told += _OFTEN.get(self._word.lower(), ())
                self._word, self._is_first = "", False
            for language in told:
                self._counts[language] += 1

    @property
    def language(self) -> str:
        """The most likely language; English of a text that says nothing of it."""
        return max(self._counts, key=self._counts.__getitem__)
