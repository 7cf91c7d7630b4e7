"""Tokens know their characters, however the text is cut."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonorant.engine.prompt.tokenizer import Tokenizer, TokenOffsets, TokenStream

TEXTS = (
    "Hello, how are you today?",
    "  The price (12.50) rose;\n\nnobody's happy — “really”. ",
    "其实我真的有发现，我是一个特别善于观察别人情绪的人。",
    "이것은 테스트입니다 and это тоже. Ça va?",
    unicodedata.normalize("NFD", "Ça alors, déjà vu; 이것은 ガギグ over."),
)


def offsets_of(tokenizer: Tokenizer, pieces: list[str]) -> TokenOffsets:
    offsets = TokenOffsets(tokenizer)
    stream = TokenStream(tokenizer, offsets)
    for piece in pieces:
        stream.push(piece)
    stream.end()
    return offsets


@pytest.mark.parametrize("text", TEXTS)
def test_each_token_begins_at_its_characters(tokenizer: Tokenizer, text: str) -> None:
    """Compute the offsets from the bytes of all tokens joined, which are those of the text in NFC."""
    offsets = offsets_of(tokenizer, [text])
    ids = tokenizer.encode(text)
    before = b""
    for index, token_id in enumerate(ids):
        token = tokenizer.bytes_of(token_id)
        begins = (before + token[: len(token) - len(token.lstrip())]).decode(errors="ignore")
        composed_before = len(text) - len(text.lstrip()) + len(begins)
        if unicodedata.is_normalized("NFC", text) and token.strip() and token.lstrip()[0] & 0xC0 != 0x80:
            assert offsets.position_of(composed_before) == index
        before += token
    assert offsets.position_of(len(text)) == len(ids)


@pytest.mark.parametrize("text", TEXTS)
@settings(max_examples=20)
@given(data=st.data())
def test_the_cutting_makes_no_difference(
    tokenizer: Tokenizer, small_tokenizer: Tokenizer, text: str, data: st.DataObject
) -> None:
    """Also if a character has several tokens."""
    tokenizer = data.draw(st.sampled_from([tokenizer, small_tokenizer]))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    whole, cut = offsets_of(tokenizer, [text]), offsets_of(tokenizer, pieces)
    positions = [whole.position_of(char) for char in range(len(text) + 1)]
    assert positions == [cut.position_of(char) for char in range(len(text) + 1)]
    assert positions == sorted(positions)


def test_characters_that_are_composed_have_the_place_of_their_syllable(tokenizer: Tokenizer) -> None:
    text = unicodedata.normalize("NFD", "이것은 테스트 end")
    offsets = offsets_of(tokenizer, [text])
    composed = offsets_of(tokenizer, ["이것은 테스트 end"])
    assert offsets.position_of(text.index("end")) == composed.position_of(8)
    assert offsets.position_of(text.index(" ") + 1) == composed.position_of(4)


def test_a_released_end_is_not_composed_with_what_follows(tokenizer: Tokenizer) -> None:
    offsets = TokenOffsets(tokenizer)
    stream = TokenStream(tokenizer, offsets)
    for piece in ("cafe", "\u0301 noir"):
        stream.push(piece)
        stream.flush()
    position = offsets.position_of(6)
    assert position == int(position) > 1, "the word begins with a token"
