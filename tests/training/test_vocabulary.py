"""The tokenizer of a checkpoint that learns more languages keeps what it had."""

import json
from pathlib import Path

import torch
from tokenizers import Tokenizer

from sonorant.engine.checkpoint.folders import resolve_model
from sonorant.training.export import SPECIAL_TOKENS, TOKENIZER_FILE
from sonorant.training.text.vocabulary import rows_of_new_tokens, train_tokenizer

KNOWN = resolve_model("builtin_base") / TOKENIZER_FILE
SPANISH = [
    "¿Dónde está la estación de autobuses, por favor?",
    "Mañana por la mañana vendrá mi hermana de la ciudad.",
    "La información de la habitación está en la recepción.",
]


def test_new_merges_come_behind_the_known_ones(tmp_path: Path) -> None:
    train_tokenizer(SPANISH, 1060, tmp_path / TOKENIZER_FILE, KNOWN)
    old, new = (Tokenizer.from_file(str(path)) for path in (KNOWN, tmp_path / TOKENIZER_FILE))
    merges = [json.loads(tokenizer.to_str())["model"]["merges"] for tokenizer in (old, new)]
    assert merges[1][: len(merges[0])] == merges[0]
    assert new.get_vocab_size() == 1060
    text = SPANISH[2]
    assert len(new.encode(text).ids) < len(old.encode(text).ids)
    assert new.decode(new.encode(text).ids) == text
    assert new.token_to_id(SPECIAL_TOKENS[-1]) == 1059


def test_a_vocabulary_that_may_not_grow_stays_as_it_is(tmp_path: Path) -> None:
    train_tokenizer(SPANISH, 1024, tmp_path / TOKENIZER_FILE, KNOWN)
    known = Tokenizer.from_file(str(KNOWN))
    assert Tokenizer.from_file(str(tmp_path / TOKENIZER_FILE)).to_str() == known.to_str()


def test_a_new_token_begins_as_the_mean_of_those_in_its_place(tmp_path: Path) -> None:
    train_tokenizer(SPANISH, 1060, tmp_path / TOKENIZER_FILE, KNOWN)
    old, new = (Tokenizer.from_file(str(path)) for path in (KNOWN, tmp_path / TOKENIZER_FILE))
    rows = torch.randn(old.get_vocab_size(), 4, generator=torch.Generator().manual_seed(1))
    grown = rows_of_new_tokens(rows, KNOWN, tmp_path / TOKENIZER_FILE)
    assert grown.shape == (1060, 4)
    for token, number in old.get_vocab().items():  # the special tokens have moved to the end
        assert torch.equal(grown[new.token_to_id(token)], rows[number])
    [token] = [
        token for token in new.get_vocab() if token == "Ġestación"[: len(token)] and token not in old.get_vocab()
    ][:1]
    parts = [part.id for part in old.model.tokenize(token)]
    assert len(parts) > 1 and torch.equal(grown[new.token_to_id(token)], rows[parts].mean(0))
