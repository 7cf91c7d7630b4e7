"""The texts that are spoken, and their words."""

import re
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonorant.bench.grpc_speech import words_of
from sonorant.bench.texts import LANGUAGES, LENGTHS, default_language, texts

HAN = re.compile(r"[\u4e00-\u9fff]")


@pytest.mark.parametrize("language", LANGUAGES)
def test_texts_have_the_language_and_length_of_their_class(language: str) -> None:
    lengths = [[len(text) for text in texts(language, length, 0)] for length in LENGTHS]
    assert max(lengths[0]) < max(lengths[1]) < min(lengths[2]), "longer classes have longer texts"
    for text in texts(language, "any", 0):
        assert bool(HAN.search(text)) == (language != "english")
        assert bool(re.search(r"[a-z]", text)) == (language != "chinese")


def test_every_text_is_in_one_class() -> None:
    by_class = [text for language, length in product(LANGUAGES, LENGTHS) for text in texts(language, length, 0)]
    assert len(set(by_class)) == len(by_class) == len(texts("any", "any", 0))


@given(st.integers())
def test_a_seed_gives_an_order(seed: int) -> None:
    assert texts("english", "short", seed) == texts("english", "short", seed)
    assert sorted(texts("english", "short", seed)) == sorted(texts("english", "short", 0))


def test_the_default_is_what_the_server_speaks() -> None:
    assert default_language([]) == default_language(["chinese", "english"]) == "english"
    assert default_language(["chinese"]) == "chinese"


@given(st.text())
def test_words_are_the_text_in_pieces(text: str) -> None:
    assert "".join(words_of(text)) == text


@pytest.mark.parametrize("text", texts("any", "any", 0))
def test_words_are_cut_at_spaces(text: str) -> None:
    assert all(re.search(r"\w", word) for word in words_of(text))


def test_scripts_without_spaces_are_cut_into_characters() -> None:
    assert words_of("请打开 Bluetooth,谢谢。") == ["请", "打", "开 ", "Bluetooth,", "谢", "谢。"]
