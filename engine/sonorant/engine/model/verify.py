"""Checks that a checkpoint folder holds exactly the tensors its config.json calls for. Reads headers only."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.errors import CheckpointError
from sonorant.engine.model.codec.code2wav import UNUSED_TENSORS, Code2Wav
from sonorant.engine.model.codec.codec_encoder import CodecEncoder
from sonorant.engine.model.speaker_encoder import SpeakerEncoder
from sonorant.engine.model.talker import Talker
from sonorant.engine.model.weights import TensorFile, check_tensors, listed


def verify_checkpoint(checkpoint: Checkpoint) -> None:
    """Raise CheckpointError unless both files hold the tensors of their components, in their shapes, and nothing else.

    Components that the task does not use are checked too.
    """
    with torch.device("meta"):
        main: dict[str, nn.Module] = {"talker.": Talker(checkpoint)}
        if checkpoint.speaker_encoder is not None:
            main["speaker_encoder."] = SpeakerEncoder(checkpoint.speaker_encoder)
        codec = {"decoder.": Code2Wav(checkpoint.codec.decoder), "encoder.": CodecEncoder(checkpoint.codec)}
    _verify_file(checkpoint.folder / "model.safetensors", main)
    _verify_file(checkpoint.folder / "speech_tokenizer" / "model.safetensors", codec)


def _verify_file(path: Path, components: Mapping[str, nn.Module]) -> None:
    file = TensorFile(path)
    if strangers := sorted(name for name in file.names if not name.startswith(tuple(components))):
        raise CheckpointError(f"{path} does not fit its config.json; left over: {listed(strangers)}")
    for prefix, module in components.items():
        check_tensors(module, file, prefix, optional_unused=UNUSED_TENSORS if prefix == "decoder." else ())
