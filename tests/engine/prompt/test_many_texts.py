"""Thousands of texts get the ids that the published vocabulary's own algorithm gives, however they come in pieces."""

import functools
import json
import random
import unicodedata
from itertools import pairwise
from pathlib import Path

import pytest
import regex

from sonorant.engine.checkpoint.folders import PRESETS_DIR
from sonorant.engine.prompt.characters import said
from sonorant.engine.prompt.tokenizer import Tokenizer, TokenStream
from tests.written_texts import WORDS, lines, text_in, texts

# The official tokenizer's pattern; `regex` is another implementation of it than the one in our tokenizer.
_PATTERN = regex.compile(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class Reference:
    """Byte-level BPE as GPT-2 published it, which Qwen2's tokenizer is: slow and short."""

    def __init__(self, folder: Path) -> None:
        self._vocab = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
        pairs = (folder / "merges.txt").read_text(encoding="utf-8").splitlines()
        self._ranks = {tuple(pair.split()): rank for rank, pair in enumerate(pairs) if not pair.startswith("#version")}
        printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
        others = [byte for byte in range(256) if byte not in printable]
        self._chars = {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}

    def encode(self, text: str) -> list[int]:
        found = _PATTERN.findall(unicodedata.normalize("NFC", text.strip()))
        return [token for piece in found for token in self._merged(piece)]

    @functools.lru_cache(maxsize=100_000)  # noqa: B019  of one test session
    def _merged(self, piece: str) -> tuple[int, ...]:
        parts = [self._chars[byte] for byte in piece.encode()]
        while len(parts) > 1:
            ranks = [self._ranks.get(pair, len(self._ranks)) for pair in pairwise(parts)]
            if (least := min(ranks)) == len(self._ranks):
                break
            at = ranks.index(least)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        return tuple(self._vocab[part] for part in parts)


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference(PRESETS_DIR / "text_tokenizer")


def pushed(tokenizer: Tokenizer, text: str, chance: random.Random, language: str | None = None) -> list[int]:
    """Push a text in pieces of random lengths, as language models make them."""
    stream, ids, at = TokenStream(tokenizer, None, language), list[int](), 0
    while at < len(text):
        size = chance.choice((1, 2, 3, 4, 8, 40))
        ids += stream.push(text[at : at + size])
        at += size
    return ids + stream.end()


def check_texts(tokenizer: Tokenizer, reference: Reference, count: int) -> None:
    chance = random.Random(1)
    for text in texts(count):
        ids = tokenizer.encode(text)
        assert ids == reference.encode(text), text
        assert pushed(tokenizer, text, chance) == ids, text


def check_lines(tokenizer: Tokenizer, small_tokenizer: Tokenizer, reference: Reference, count: int) -> None:
    """The included voices' text goes through their front, too, and nothing of it is a token they were not taught."""
    chance, text = random.Random(2), list[str]()
    for line in lines(count):
        text.append(line)
        if len(text) < 20:
            continue
        whole = "\n".join(text)
        text.clear()
        assert pushed(tokenizer, whole, chance) == reference.encode(whole), whole
        included = Tokenizer(small_tokenizer._bpe, "ascii", in_words=True)
        assert pushed(included, whole, chance) == included.encode(whole), whole
        given = included.given(whole)
        assert given.isascii() and not any(char.isdigit() for char in given), whole


def test_ten_languages(tokenizer: Tokenizer, reference: Reference) -> None:
    assert len(WORDS) == 10
    check_texts(tokenizer, reference, 500)


def test_lines_of_language_models(tokenizer: Tokenizer, small_tokenizer: Tokenizer, reference: Reference) -> None:
    check_lines(tokenizer, small_tokenizer, reference, 1000)


@pytest.mark.parametrize("language", ["english", "spanish", "italian"])
def test_two_thousand_texts_of_a_language_that_is_named_or_guessed(small_tokenizer: Tokenizer, language: str) -> None:
    kinds, chance = (
        [Tokenizer(small_tokenizer._bpe, "western", in_words=has) for has in (False, True)],
        random.Random(language),
    )
    for number in range(2000):
        text, named, in_words = text_in(language, chance), language if number % 2 else None, number % 4 > 1
        western = kinds[in_words]
        assert pushed(western, text, chance, named) == western.encode(text, named), text
        given = western.given(text, named)
        assert all(char in "—/" or said(char, "western") == char for char in given), text
        assert not (in_words and any(char.isdigit() for char in given)), text


@pytest.mark.slow
@pytest.mark.rare
def test_ten_thousand_texts(tokenizer: Tokenizer, reference: Reference) -> None:
    check_texts(tokenizer, reference, 10_000)


@pytest.mark.slow
@pytest.mark.rare
@pytest.mark.timeout(1200)
def test_a_hundred_thousand_lines(tokenizer: Tokenizer, small_tokenizer: Tokenizer, reference: Reference) -> None:
    check_lines(tokenizer, small_tokenizer, reference, 100_000)
