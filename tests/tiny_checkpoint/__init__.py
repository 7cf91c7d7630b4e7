"""Writes complete checkpoints of a few hundred kilobytes in the published layout, for tests.

Weights depend on the seed and the tensor's name alone, and the files on nothing but numpy and safetensors, so that the
official package's environment (see tests/parity) writes the same bytes as ours.
"""

import json
from pathlib import Path
from typing import Any

from safetensors.numpy import save_file

from tests.tiny_checkpoint.codec import codec_decoder_shapes, codec_encoder_shapes
from tests.tiny_checkpoint.configs import checkpoint_config, codec_config, generation_config, preprocessor_config
from tests.tiny_checkpoint.sizes import TinySizes
from tests.tiny_checkpoint.talker import speaker_encoder_shapes, talker_shapes
from tests.tiny_checkpoint.tokenizer import text_vocab_size, tokenizer_config, tokenizer_tables
from tests.tiny_checkpoint.weights import random_weights

__all__ = ["QUICK", "write_tiny_checkpoint"]

# Sizes of a talker that the functions in C run, in a thirtieth of the time that plain operations take.
QUICK = {"head_dim": 16, "predictor_hidden": 32}


def write_tiny_checkpoint(folder: Path, task: str = "custom_voice", *, seed: int = 0, **sizes: Any) -> Path:
    """Write a checkpoint for `task` (custom_voice, voice_design or base) into `folder` and return it."""
    s = TinySizes(**sizes)
    codec_folder = folder / "speech_tokenizer"
    codec_folder.mkdir(parents=True, exist_ok=True)
    vocab, merges, specials = tokenizer_tables()
    _write_json(folder / "config.json", checkpoint_config(s, task, vocab, specials))
    _write_json(folder / "generation_config.json", generation_config())
    _write_json(folder / "vocab.json", vocab)
    (folder / "merges.txt").write_text("".join(f"{a} {b}\n" for a, b in merges), encoding="utf-8")
    _write_json(folder / "tokenizer_config.json", tokenizer_config(specials))
    _write_json(codec_folder / "config.json", codec_config(s))
    _write_json(codec_folder / "preprocessor_config.json", preprocessor_config())
    talker = talker_shapes(s, text_vocab_size=text_vocab_size(vocab, specials))
    main = talker | (speaker_encoder_shapes(s) if task == "base" else {})
    save_file(random_weights(main, seed), folder / "model.safetensors", {"format": "pt"})
    codec = codec_decoder_shapes(s) | codec_encoder_shapes(s)
    save_file(random_weights(codec, seed), codec_folder / "model.safetensors", {"format": "pt"})
    return folder


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1), encoding="utf-8")
