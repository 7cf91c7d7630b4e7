"""Fingerprints of weights: they show whether a stored voice was made with this very checkpoint, and stored codes with
this very codec."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.checkpoint.weights_file import add_samples
from sonorant.engine.config import EngineConfig


def fingerprint(checkpoint: Checkpoint, config: EngineConfig) -> str:
    """Return sixteen hex digits that identify a checkpoint, wherever its folder lies. Reads some megabytes at most.

    They cover both config.json files, and of both weights files the size, the header and samples of the data. Raises
    CheckpointError if a weights file cannot be read.
    """
    return _digest([checkpoint.folder, _codec_folder(checkpoint)], config)


def codec_fingerprint(checkpoint: Checkpoint, config: EngineConfig) -> str:
    """Return such a fingerprint of the codec alone, which several checkpoints may share."""
    return _digest([_codec_folder(checkpoint)], config)


def _codec_folder(checkpoint: Checkpoint) -> Path:
    return checkpoint.folder / "speech_tokenizer"


def _digest(folders: Sequence[Path], config: EngineConfig) -> str:
    digest = hashlib.sha256()
    for folder in folders:
        digest.update((folder / "config.json").read_bytes())
        if config.load_format == "safetensors":
            add_samples(folder / "model.safetensors", digest)
    if config.load_format == "dummy":
        digest.update(b"dummy %d" % config.seed)
    return digest.hexdigest()[:16]
