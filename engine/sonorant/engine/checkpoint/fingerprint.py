"""Which weights these are, in one word: for telling whether a stored voice was made with this very checkpoint, and
stored codes with this very codec."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.checkpoint.weights_file import add_samples
from sonorant.engine.config import EngineConfig


def fingerprint(checkpoint: Checkpoint, config: EngineConfig) -> str:
    """Sixteen hex digits that do not depend on where the folder lies; reads some megabytes at most.

    Of both config.json, and of size, header and samples of both files of weights. Raises CheckpointError.
    """
    return _digest([checkpoint.folder, _codec_folder(checkpoint)], config)


def codec_fingerprint(checkpoint: Checkpoint, config: EngineConfig) -> str:
    """Likewise, of the codec alone, which several checkpoints may have in common."""
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
