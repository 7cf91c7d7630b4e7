"""Signs are said in the language of the text."""

import sys
import unicodedata

import pytest

from sonorant.engine.prompt import characters, words
from sonorant.engine.prompt.words import Guess, in_language

LANGUAGES = ("english", "spanish", "italian")
# With what people begin who write to an assistant, or it to them.
TEXTS = {
    "english": ("What's the weather like", "Water boils at", "It costs about", "Preheat the oven to", "He said it was"),
    "spanish": (
        "¿Qué tiempo hace",
        "El agua hierve a",
        "Cuesta unos",
        "Precalienta el horno a",
        "Dijo que era",
        "Hay",
        "Pulse",
    ),
    "italian": (
        "Che tempo fa",
        "L'acqua bolle a",
        "Costa circa il",
        "Preriscalda il forno a",
        "Ha detto che era",
        "Prema",
    ),
}


def asked_for() -> set[str]:
    """What the rules may ask for, in English."""
    found = {*characters._SAID.values(), *characters.FRACTIONS.values(), *characters._UNITS.values(), "and"}
    found |= {said for _, said in characters._MEANINGS.values()} | {"to the", "to the minus"}
    for char in map(chr, range(sys.maxunicode + 1)):
        name = unicodedata.name(char, "").removesuffix(" SIGN")
        if unicodedata.category(char) == "Sc":
            found.add(name.lower())
        elif name.startswith("GREEK SMALL LETTER "):
            found.add(name.rpartition(" ")[2].lower())
    return found - {""}


@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_each_word_of_a_table_is_asked_for_and_can_be_given(language: str) -> None:
    table = words._WORDS[language]
    assert table.keys() <= asked_for()
    often = {"number", "times", "degrees", "squared", "cubed", "to the", "equals", "about", "and"}
    assert {*characters.FRACTIONS.values(), *often} <= table.keys()
    given = "".join(word for word in table.values() if word != "/")
    assert all(characters.said(char, "western") == char.lower() for char in given)


def test_what_a_table_lacks_is_said_in_english() -> None:
    assert in_language("times", "italian") == "per"
    assert in_language("plus", "spanish") == "más" and in_language("plus", "german") == "plus"


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_language_is_told_by_its_words(language: str) -> None:
    for text in TEXTS[language]:
        guess = Guess()
        guess.take(f"{text} 5")
        assert guess.language == language, text


def test_a_text_that_tells_nothing_is_english() -> None:
    guess = Guess()
    guess.take("5 × 5 xyz ")
    assert guess.language == "english"


@pytest.mark.parametrize(
    "text", ["José García is 5", "It's Maria's 5", "El Niño of 5", "The CEO E 5", "In the São Paulo of 5", "55 plus 5"]
)
def test_names_and_single_letters_are_of_no_language(text: str) -> None:
    guess = Guess()
    guess.take(text)
    assert guess.language == "english"
