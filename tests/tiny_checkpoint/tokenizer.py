"""The text tokenizer of the tiny checkpoints: a small byte-level BPE."""

import math
from typing import Any

WORDS = "assistant user the quick brown fox jumps over lazy dog hello world speak slowly with joy and today is fine"


def tokenizer_tables() -> tuple[dict[str, int], list[tuple[str, str]], dict[str, int]]:
    """A byte-level BPE: every byte, and each of WORDS (alone and after a space) merged from left to right."""
    vocab = {symbol: i for i, symbol in enumerate(_byte_symbols())}
    merges: dict[tuple[str, str], None] = {}
    for word in (prefix + plain for plain in WORDS.split() for prefix in ("", "Ġ")):
        for i in range(1, len(word)):
            merges[word[:i], word[i]] = None
            vocab.setdefault(word[: i + 1], len(vocab))
    names = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tts_pad>", "<tts_text_bos>", "<tts_text_eod>")
    return vocab, list(merges), {name: len(vocab) + i for i, name in enumerate(names)}


def _byte_symbols() -> list[str]:
    """The 256 printable stand-ins of byte-level BPE, in the usual order."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [b for b in range(256) if b not in printable]
    return [chr(b) for b in printable] + [chr(256 + i) for i in range(len(others))]


def text_vocab_size(vocab: dict[str, int], specials: dict[str, int]) -> int:
    return math.ceil((len(vocab) + len(specials)) / 64) * 64


def tokenizer_config(specials: dict[str, int]) -> dict[str, Any]:
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    return {
        "add_prefix_space": False,
        "added_tokens_decoder": {str(i): {"content": name} | flags for name, i in specials.items()},
        "additional_special_tokens": list(specials)[1:],
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "unk_token": None,
        "model_max_length": 131072,
        "tokenizer_class": "Qwen2Tokenizer",
    }
