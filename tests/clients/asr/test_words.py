"""Words of transcripts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonorant.asr.words import ends_in_unspaced_script, may_grow, split_words


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_words_are_the_text(text: str) -> None:
    words = split_words(text)
    assert "".join(words) == " ".join(text.split())
    assert all(word.strip() and not word.endswith(" ") for word in words)


def test_scripts_without_spaces_are_cut_into_characters() -> None:
    assert split_words("你好, ok。東京") == ["你", "好", ",", " ok", "。", "東", "京"]
    assert ends_in_unspaced_script("ok。") and not ends_in_unspaced_script("好 ok")


@pytest.mark.parametrize(
    "word",
    [
        "2026",
        " $1",
        "1st",
        "$",
        "No.",
        "dr.",
        "U.S.",
        "e.g.",
        "twenty",
        "Thirty-Five",
        "hundred",
        "b",
        "(",
        "rock-",
        '"',
    ],
)
def test_words_that_depend_on_the_next_one(word: str) -> None:
    assert may_grow(word)


@pytest.mark.parametrize("word", ["no", "drive", "I", "a", "done.", "ones", "tent", "weight", "é", "你", "well,"])
def test_words_that_stand_alone(word: str) -> None:
    assert not may_grow(word)
