"""The tokenizer of a checkpoint that learns more languages keeps what it had."""

import json
from pathlib import Path

import torch
from tokenizers import Tokenizer

from sonorant.engine.checkpoint.folders import resolve_model
from sonorant.training.export import SPECIAL_TOKENS, TOKENIZER_FILE
from sonorant.training.text.vocabulary import grow_tokenizer, rows_of_new_tokens

KNOWN = resolve_model("builtin_base") / TOKENIZER_FILE
SPANISH = [
    "¿Dónde está la estación de autobuses, por favor?",
    "Mañana por la mañana vendrá mi hermana de la ciudad.",
    "La información de la habitación está en la recepción.",
]


ENGLISH = ["The bus has a ladder.", "Please assist the old lady."]


def test_other_languages_get_tokens_of_which_english_has_none(tmp_path: Path) -> None:
    grow_tokenizer(KNOWN, 1060, SPANISH, ENGLISH, tmp_path / TOKENIZER_FILE)
    old, new = (Tokenizer.from_file(str(path)) for path in (KNOWN, tmp_path / TOKENIZER_FILE))
    merges = [json.loads(tokenizer.to_str())["model"]["merges"] for tokenizer in (old, new)]
    assert merges[1][: len(merges[0])] == merges[0]
    assert 1030 < new.get_vocab_size() <= 1060
    text = SPANISH[2]
    assert len(new.encode(text).ids) < len(old.encode(text).ids)
    assert new.decode(new.encode(text).ids) == text
    assert new.token_to_id(SPECIAL_TOKENS[-1]) == new.get_vocab_size() - 1
    grow_tokenizer(KNOWN, 1060, SPANISH, [], tmp_path / "any.json")
    heedless = Tokenizer.from_file(str(tmp_path / "any.json"))
    assert any(heedless.encode(text).tokens != old.encode(text).tokens for text in ENGLISH)
    assert all(new.encode(text).tokens == old.encode(text).tokens for text in ENGLISH)


def test_a_vocabulary_that_may_not_grow_stays_as_it_is(tmp_path: Path) -> None:
    grow_tokenizer(KNOWN, 1024, SPANISH, ENGLISH, tmp_path / TOKENIZER_FILE)
    known = Tokenizer.from_file(str(KNOWN))
    assert Tokenizer.from_file(str(tmp_path / TOKENIZER_FILE)).to_str() == known.to_str()


def test_a_new_token_begins_as_the_mean_of_those_in_its_place(tmp_path: Path) -> None:
    grow_tokenizer(KNOWN, 1060, SPANISH, ENGLISH, tmp_path / TOKENIZER_FILE)
    old, new = (Tokenizer.from_file(str(path)) for path in (KNOWN, tmp_path / TOKENIZER_FILE))
    rows = torch.randn(old.get_vocab_size(), 4, generator=torch.Generator().manual_seed(1))
    grown = rows_of_new_tokens(rows, KNOWN, tmp_path / TOKENIZER_FILE)
    assert grown.shape == (new.get_vocab_size(), 4)
    for token, number in old.get_vocab().items():  # the special tokens have moved to the end
        assert torch.equal(grown[new.token_to_id(token)], rows[number])
    [token] = [
        token for token in new.get_vocab() if token == "Ġestación"[: len(token)] and token not in old.get_vocab()
    ][:1]
    parts = [part.id for part in old.model.tokenize(token)]
    assert len(parts) > 1 and torch.equal(grown[new.token_to_id(token)], rows[parts].mean(0))
