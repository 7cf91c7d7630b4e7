"""The text tokenizer of a small checkpoint: Qwen2's byte-level BPE with far fewer merges, trained on the sentences."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from torch import Tensor

from sonorant.training.export import SPECIAL_TOKENS

# Qwen2's pattern: words take one leading space, digits stand alone.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEMPLATE_COPIES = 20_000  # enough that the words of the prompt template become tokens of their own

Merge = tuple[str, str]


def train_tokenizer(texts: Sequence[str], size: int, path: Path) -> None:
    """Write a tokenizer of `size` tokens."""
    _save(_trained(texts, size), path)


def grow_tokenizer(known: Path, size: int, texts: Sequence[str], same: Sequence[str], path: Path) -> None:
    """Write a tokenizer of `size` tokens at most that has all tokens of `known`, and the most frequent ones of `texts`
    that do not occur in the texts `same`: these keep the tokens that they have."""
    before = Tokenizer.from_file(str(known))
    merges = list(_merges_of(before))
    learned = [merge for merge in _merges_of(_trained(texts, 4 * size)) if merge not in set(merges)]
    foreign: set[str] = set()
    while True:
        grown = _merged([*merges, *(merge for merge in learned if "".join(merge) not in foreign)], size)
        used = {token for text in grown.encode_batch(list(same)) for token in text.tokens}
        unwanted = used - set(before.get_vocab())
        if not unwanted:
            break
        foreign |= unwanted
    _save(grown, path)


def _merged(merges: Sequence[Merge], size: int) -> Tokenizer:
    """A tokenizer of the first merges that `size` tokens have room for, without those of which a part is no token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: number for number, token in enumerate(alphabet)}
    kept: list[Merge] = []
    for left, right in merges:
        if len(vocab) == size - len(SPECIAL_TOKENS):
            break
        if left in vocab and right in vocab:
            vocab.setdefault(left + right, len(vocab))
            kept.append((left, right))
    return _tokenizer(models.BPE(vocab, kept))


def _save(tokenizer: Tokenizer, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(path))


def rows_of_new_tokens(rows: Tensor, old: Path, new: Path) -> Tensor:
    """The embeddings [tokens of `new`, hidden] of a tokenizer that has grown out of `old`, made of those of `old`
    [tokens of `old`, hidden]. A new token has the mean of the tokens that stood in its place."""
    before, after = Tokenizer.from_file(str(old)), Tokenizer.from_file(str(new))
    ids = before.get_vocab()

    def embedded(token: str) -> Tensor:
        return rows[ids[token]] if token in ids else rows[[part.id for part in before.model.tokenize(token)]].mean(0)

    tokens = after.get_vocab()
    return torch.stack([embedded(token) for token in sorted(tokens, key=lambda token: tokens[token])])


def _trained(texts: Sequence[str], size: int) -> Tokenizer:
    tokenizer = _tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    template = ["assistant\n"] * TEMPLATE_COPIES + ["user\n"] * TEMPLATE_COPIES
    tokenizer.train_from_iterator([*texts, *template], trainer)
    return tokenizer


def _tokenizer(model: models.BPE) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    return tokenizer


def _merges_of(tokenizer: Tokenizer) -> Sequence[Merge]:
    return [(left, right) for left, right in json.loads(tokenizer.to_str())["model"]["merges"]]
