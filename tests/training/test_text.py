import random
import re
import struct
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from sonorant.training.evaluation.sentences import everyday_sentences, held_out_sentences
from sonorant.training.text.corpus import MIX_OF_OTHERS, normalized
from sonorant.training.text.grammar import Grammar, everyday_file, inflect
from sonorant.training.text.numbers import in_words, number_sentence
from sonorant.training.text.other_languages import texts_of
from sonorant.training.text.sources import SourceMissing, plain_sentences
from sonorant.training.text.translations import OFTEN, dictionary, tale_sentences

OTHERS = ("spanish", "french", "italian", "portuguese")
TALES = ["Nadie sabe.", "Tu viens ?"]
_UNEXPANDED = re.compile(r"[{}\[\]<>|]|\D/|  |\.\.")


@pytest.mark.parametrize(
    ("word", "form", "expected"),
    [
        ("box", "s", "boxes"),
        ("wife/wives", "s", "wives"),
        ("wife/wives", None, "wife"),
        ("try", "ed", "tried"),
        ("play", "ed", "played"),
        ("change", "ing", "changing"),
        ("give/gives/gave/given/giving away", None, "give away"),
        ("give/gives/gave/given/giving away", "en", "given away"),
        ("give/gives/gave/given/giving away", "ing", "giving away"),
        ("happy", "er", "happier"),
        ("beautiful", "est", "most beautiful"),
    ],
)
def test_inflection(word: str, form: str | None, expected: str) -> None:
    assert inflect(word, form) == expected


def test_articles_options_and_the_first_letter() -> None:
    grammar = Grammar({"sentence": ("{a} {thing} is {a} hour old[, please]",), "thing": ("apple",)}, {})
    rng = random.Random(1)
    assert {grammar.sentence(rng) for _ in range(50)} == {
        "An apple is an hour old",
        "An apple is an hour old, please",
    }


def test_the_everyday_grammar_leaves_nothing_unexpanded() -> None:
    special = {name: lambda rng, form: "Ten" for name in ("first_name", "number_words", "number_digits", "time_digits")}
    grammar, rng = Grammar.load(everyday_file("english"), special), random.Random(1)
    texts = {grammar.sentence(rng) for _ in range(5000)}
    assert len(texts) > 4000
    assert not [text for text in texts if _UNEXPANDED.search(text)]


def _texts(language: str) -> dict[str, list[str]]:
    """1,500 texts of each kind as the sentence list has them, with few tales and words."""
    texts: dict[str, list[str]] = {}
    for kind, source in texts_of(language, ("ya", "tôt", "più"), TALES, random.Random(1), texts).items():
        texts[kind] = list(islice(source, 1500))
    return texts


@pytest.mark.parametrize("language", OTHERS)
def test_other_languages_have_texts_of_every_kind(language: str) -> None:
    texts = _texts(language)
    assert texts == _texts(language)
    assert list(texts) == list(MIX_OF_OTHERS)
    assert sorted(texts.pop("tale")) == sorted(TALES)
    assert all(len(listed) == 1500 for listed in texts.values())
    assert len(set(texts["everyday"])) > 1200
    assert not [text for listed in texts.values() for text in listed if _UNEXPANDED.search(text)]


@pytest.mark.parametrize("language", OTHERS)
def test_words_that_merge_are_never_apart(language: str) -> None:
    apart = {
        "spanish": r"\b(de|a) el\b",
        "french": r"\b(de|à) les?\b|\b([djlmnst]e|la|que|jusque) (?!oui|onze)[aeiouéèêœ]",
        "italian": r"\b(di|a|da|su) (il|lo|la|i|gli|le|l)\b|\b(il|la) [aeiou]|\b(il|un) (z|s[bcdfglmnpqrtv])",
        "portuguese": r"\b(de|em|por) [oa]s?\b|\ba os?\b",
    }[language]
    assert not [text for text in _texts(language)["everyday"] if re.search(apart, text)]


@pytest.mark.parametrize(
    ("language", "text", "joined"),
    [
        ("spanish", "de el vecino a el mar", "Del vecino al mar"),
        (
            "french",
            "le ami de le maire va à le port parce que il a le onze",
            "L'ami du maire va au port parce qu'il a le onze",
        ),
        ("french", "le hôtel de les héros", "L'hôtel des héros"),
        ("italian", "il zio di il amico va a la isola da il sindaco", "Lo zio dell'amico va all'isola dal sindaco"),
        ("italian", "su il tetto di i vicini con una amica", "Sul tetto dei vicini con un'amica"),
        (
            "portuguese",
            "o livro de a menina em esta mesa por o rio a as três",
            "O livro da menina nesta mesa pelo rio às três",
        ),
    ],
)
def test_words_merge_with_their_neighbours(language: str, text: str, joined: str) -> None:
    grammar = Grammar.load(everyday_file(language), {"sentence": lambda rng, form: text})
    assert grammar.sentence(random.Random(1)) == joined


@pytest.mark.parametrize(
    ("number", "words"),
    [(0, "zero"), (21, "twenty one"), (300, "three hundred"), (40_017, "forty thousand seventeen")],
)
def test_numbers_in_words(number: int, words: str) -> None:
    assert in_words(number) == words


def test_number_sentences_are_plain_ascii() -> None:
    rng = random.Random(1)
    assert all(number_sentence(rng).isascii() for _ in range(500))


def test_only_plain_sentences_are_taken_from_documentation() -> None:
    known = frozenset(["the", "cat", "sat", "here", "return", "a", "list", "of", "names"])
    text = "Return a `list` of names. The cat sat -- here. THE CAT sat here. The xqz sat here. the cat's list"
    assert list(plain_sentences(text, known)) == ["Return a list of names.", "The cat's list."]


def test_tales_are_sentences_of_known_words_or_of_words_that_are_often_small(tmp_path: Path) -> None:
    often = "Los orcos vienen. " * OFTEN
    folder = tmp_path / "es" / "LC_MESSAGES"
    folder.mkdir(parents=True)
    texts = (
        "",
        "Una casa\0Dos casas de aquí.",
        f"{often}Delfador viene a casa.",
        "\u00bfQué dice <b>hoy</b>?",
        "¿Y la casa?",
    )
    (folder / "wesnoth-one.mo").write_bytes(_catalogue([text.encode() for text in texts]))
    (folder / "wesnoth.mo").write_bytes(_catalogue([b"", b"Dos casas de la casa."]))
    words = ("una", "casa", "dos", "casas", "de", "aquí", "los", "vienen", "viene", "a", "y", "la")
    assert tale_sentences("spanish", words, tmp_path) == [
        "Dos casas de aquí.",
        *["Los orcos vienen."] * OFTEN,
        "¿Y la casa?",
    ]


def _catalogue(texts: list[bytes]) -> bytes:
    """A file of gettext's .mo format; only the translations are filled in."""
    first = 28 + 16 * len(texts)
    starts = [first + sum(len(text) + 1 for text in texts[:number]) for number in range(len(texts))]
    table = b"".join(struct.pack("<2I", len(text), start) for text, start in zip(texts, starts, strict=True))
    header = struct.pack("<7I", 0x950412DE, 0, len(texts), 28, 28 + 8 * len(texts), 0, 0)
    return header + bytes(8 * len(texts)) + table + b"".join(text + b"\0" for text in texts)


def test_a_dictionary_is_read_without_names(tmp_path: Path) -> None:
    (tmp_path / "french").write_text("été\nParis\nl'eau\nà\n", encoding="utf-8")
    assert dictionary("french", tmp_path) == ("été", "à")


def test_what_is_missing_is_named_with_its_package(tmp_path: Path) -> None:
    with pytest.raises(SourceMissing, match="apt install wbrazilian"):
        dictionary("portuguese", tmp_path)
    with pytest.raises(SourceMissing, match="apt install wesnoth"):
        tale_sentences("italian", (), tmp_path)


def test_texts_are_the_same_whatever_their_punctuation_but_not_whatever_their_accents() -> None:
    assert normalized("¿Qué? ¡Si!") == normalized("qué, si") == "qué si"
    assert normalized("Sí.") != normalized("Si.")


def test_the_evaluation_has_its_sentences() -> None:
    everyday, held_out = everyday_sentences(), held_out_sentences()
    assert len(everyday) == len(set(everyday)) >= 100
    assert all(6 <= len(text.split()) <= 10 for text in everyday)
    assert len(held_out) == 200
    assert not set(everyday) & {text for _, _, text in held_out}


@pytest.mark.parametrize("language", OTHERS)
def test_the_evaluation_has_everyday_sentences_in_other_languages(language: str) -> None:
    everyday = everyday_sentences(language)
    assert len(everyday) == len(set(everyday)) == 40
    assert all(5 <= len(text.split()) <= 14 for text in everyday)
    assert not set(everyday) & set(_texts(language)["everyday"])


def test_the_beginning_of_what_is_held_out_has_all_languages_in_their_shares() -> None:
    lines = held_out_sentences(("english", *OTHERS))
    assert len(lines) == 360
    beginning = Counter(language for language, _, _ in lines[:180])
    assert beginning == {"english": 100, **dict.fromkeys(OTHERS, 20)}
