"""Text that comes in pieces is put into words of its language, and into the same ones however it is cut."""

import random

import pytest

from sonorant.engine.prompt.words_stream import WordsStream
from tests.engine.prompt.pieces import PARTS, read

OTHERS = [
    *",.:/$%-€º",
    *("0", "1", "7", "12", "21", "250", "345", "678", "1987", "0199", "20h30", "12 h 30", " 1/2", " 31/8/1687"),
    *("n.º", "nº", "N", "R", "R$", " € ", " %", "km", "h", "m", "s", "km/h", "/h", "grados C", "er", "euros"),
    *("Sr.", "sig.ra", " p. ej", "EE.", " UU.", "etc", ".", "a. C.", "p. m.", "XIV", "II", "la ", "@", ".es", "www."),
    *("https://", "DNI", "siglo ", "millones", "milioni", "personas", "maggio", " a las 4.40", " alle 4.30"),
    *(
        " la ",
        " de ",
        " y ",
        " e ",
        " più ",
        " così ",
        " así ",
        " años ",
        " the ",
        " is ",
        "é",
        "¿",
        "casa",
        "Río",
        "TV",
        "IT",
    ),
]


@pytest.mark.parametrize("language", ["spanish", "italian", None])
def test_two_thousand_texts_are_read_alike_however_they_are_cut(language: str | None) -> None:
    chance = random.Random(language)
    parts = OTHERS if language else [*OTHERS, *PARTS]
    for _ in range(2000):
        joined = "".join(chance.choice((*parts, " ")) for _ in range(chance.randint(1, 30))) + "."
        text = " ".join(joined.split())
        given, ends = read(text, (), language)
        cuts = sorted(chance.sample(range(1, len(text)), min(len(text) - 1, chance.randint(0, 6))))
        for pieces in (cuts, range(1, len(text))):
            assert read(text, pieces, language) == (given, ends), (text, pieces)
        assert not any(char.isdigit() for char in given), text
        assert len(ends) == len(given) and list(ends) == sorted(ends), text


def test_words_are_of_the_language_that_came_before() -> None:
    for written, said in {
        "The TV has 21 parts.": "The tee vee has twenty one parts.",
        "Tiene 21 años y mide 1,80 metros.": "Tiene veintiún años y mide uno coma ochenta metros.",
        "La riunione è alle 10:30.": "La riunione è alle dieci e trenta.",
        "Ho 21 anni.": "Ho ventuno anni.",
        "José García is 40.": "José García is forty.",
        "21": "twenty one",
        "Son 5. The list has 5 parts and is on the TV.": ("Son cinco. The list has five parts and is on the tee vee."),
    }.items():
        assert read(written, (), None)[0] == said
        assert read(written, range(1, len(written)), None)[0] == said


def test_words_of_english_with_accents_are_words() -> None:
    for text in ("A fête, née in a rôle.", "Déjà vu is a cliché."):
        assert read(text, (), "english")[0] == text


def test_no_word_waits_for_the_language() -> None:
    stream = WordsStream(None)
    for word in ("The", " house", " is", " grande", " de", " piedra"):
        assert stream.push(word, range(len(word)))[0] == word
