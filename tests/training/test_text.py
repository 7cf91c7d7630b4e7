import random
from pathlib import Path

import pytest

from sonorant.training.evaluation.sentences import everyday_sentences, held_out_sentences
from sonorant.training.text.grammar import EVERYDAY_FILE, Grammar, inflect
from sonorant.training.text.numbers import in_words, number_sentence
from sonorant.training.text.sources import plain_sentences


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
    grammar, rng = Grammar.load(EVERYDAY_FILE, special), random.Random(1)
    texts = {grammar.sentence(rng) for _ in range(5000)}
    assert len(texts) > 4000
    assert not [text for text in texts if set(text) & set("{}[]<>|/") or "  " in text]


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


def test_the_evaluation_has_its_sentences() -> None:
    everyday, held_out = everyday_sentences(), held_out_sentences()
    assert len(everyday) == len(set(everyday)) >= 100
    assert all(6 <= len(text.split()) <= 10 for text in everyday)
    assert len(held_out) == 200
    assert not set(everyday) & {text for _, text in held_out}
    assert Path(EVERYDAY_FILE).is_file()
