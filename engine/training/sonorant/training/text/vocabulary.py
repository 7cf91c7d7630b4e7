"""The text tokenizer of a small checkpoint: Qwen2's byte-level BPE with far fewer merges, trained on the sentences."""

from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from sonorant.training.export import SPECIAL_TOKENS

# Qwen2's pattern: words take one leading space, digits stand alone.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEMPLATE_COPIES = 20_000  # enough that the words of the prompt template become tokens of their own


def train_tokenizer(texts: Iterable[str], size: int, path: Path) -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    template = ["assistant\n"] * TEMPLATE_COPIES + ["user\n"] * TEMPLATE_COPIES
    tokenizer.train_from_iterator([*texts, *template], trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    path.parent.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(path))
