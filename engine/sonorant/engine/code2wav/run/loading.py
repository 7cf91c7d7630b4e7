"""Loads the weights of Code2Wav in the form that its decoder needs."""

from collections.abc import Mapping

import torch
from torch import Tensor

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.checkpoint.fingerprint import codec_fingerprint
from sonorant.engine.config import EngineConfig
from sonorant.engine.cpu.codec_weights import codec_weights, conversion_of, is_large
from sonorant.engine.model.codec.code2wav import UNUSED_TENSORS, Code2Wav
from sonorant.engine.model.kept_weights import keep, kept_path, read_kept
from sonorant.engine.model.weights import TensorFile, init_random, load_module


def empty_code2wav(checkpoint: Checkpoint) -> Code2Wav:
    with torch.device("meta"):
        return Code2Wav(checkpoint.codec.decoder)


def load_code2wav(checkpoint: Checkpoint, config: EngineConfig, device: torch.device, dtype: torch.dtype) -> Code2Wav:
    """Return the decoder with its weights, ready to `step`."""
    decoder = empty_code2wav(checkpoint)
    if config.load_format == "dummy":
        init_random(decoder, device, dtype, config.seed)
        decoder.damp_random_weights()
    else:
        file = TensorFile(checkpoint.folder / "speech_tokenizer" / "model.safetensors")
        load_module(decoder, file, "decoder.", device, dtype, optional_unused=UNUSED_TENSORS)
    with torch.inference_mode():
        decoder.prepare()
    return decoder


def load_arranged(checkpoint: Checkpoint, config: EngineConfig) -> Mapping[str, Tensor]:
    """Return the weights as the C functions need them; those of a large network from the file that an earlier start
    kept, or arranged and kept."""
    decoder = empty_code2wav(checkpoint)
    conversion = conversion_of(decoder)
    path = kept_path(codec_fingerprint(checkpoint, config), conversion) if is_large(decoder) else None
    if path is not None and (kept := read_kept(path)) is not None:
        return kept
    with torch.inference_mode():
        cpu = torch.device("cpu")
        weights = codec_weights(load_code2wav(checkpoint, config, cpu, torch.float32), conversion)
    if path is not None:
        keep(path, weights)
    return (path and read_kept(path)) or weights  # what is mapped takes no memory where nobody reads it
