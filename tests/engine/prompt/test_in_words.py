"""Numbers in words: however the text is cut, nothing of it is a digit, and each word knows where its number stands."""

import random

import pytest

from sonorant.engine.prompt.rules import MAX_HELD
from sonorant.engine.prompt.tokenizer import Tokenizer, TokenOffsets, TokenStream
from sonorant.engine.prompt.words_stream import WordsStream
from tests.engine.prompt.pieces import PARTS, read


def test_five_thousand_texts_are_read_alike_however_they_are_cut() -> None:
    chance = random.Random(5)
    for _ in range(5000):
        text = "".join(chance.choice((*PARTS, " ")) for _ in range(chance.randint(1, 40))) + "."
        given, ends = read(text)
        cuts = sorted(chance.sample(range(1, len(text)), min(len(text) - 1, chance.randint(0, 6))))
        assert read(text, cuts) == (given, ends), (text, cuts)
        assert not any(char.isdigit() for char in given), text
        assert len(ends) == len(given) and list(ends) == sorted(ends), text


def test_a_word_is_given_at_once_unless_it_begins_as_one_in_short_does() -> None:
    for word in ("The", " hel", "Not", "It"):
        assert WordsStream("english").push(word, range(len(word)))[0] == word
    for word in ("No", "pound", "US", "I", "a"):
        assert not WordsStream("english").push(word, range(len(word)))[0]


def test_a_number_is_held_until_the_word_behind_it_has_ended() -> None:
    stream = WordsStream("english")
    assert stream.push("I have 3", range(8))[0] == "I have "
    assert stream.push(" ca", range(8, 11))[0] == ""
    assert stream.push("ts ", range(11, 14))[0] == "three cats "
    assert stream.push("5", [15], is_last=True)[0] == "five"
    assert stream.push("1" * MAX_HELD, range(MAX_HELD))[0] == " ".join(["one"] * MAX_HELD)


@pytest.mark.parametrize("is_cut", [False, True])
def test_words_of_numbers_stand_where_the_number_does(small_tokenizer: Tokenizer, is_cut: bool) -> None:
    tokenizer = Tokenizer(small_tokenizer._bpe, "ascii", in_words=True)
    text = "There were 250 guests."
    offsets = TokenOffsets(tokenizer)
    stream = TokenStream(tokenizer, offsets)
    ids = [token for piece in (text if is_cut else [text]) for token in stream.push(piece)] + stream.end()
    assert ids == tokenizer.encode(text)
    assert tokenizer.given(text) == "There were two hundred and fifty guests."
    tokens = [tokenizer.text_of(token) for token in ids]
    begins = {word: offsets.position_of(text.index(word)) for word in ("There", "250", "guests")}
    said = {word: "".join(tokens[: int(begin)]).split() for word, begin in begins.items()}
    assert said == {
        "There": [],
        "250": ["There", "were"],
        "guests": ["There", "were", "two", "hundred", "and", "fifty"],
    }
