"""Loads a trained codec from its checkpoint, to train its decoder further."""

from pathlib import Path

import torch

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.model.codec.code2wav import UNUSED_TENSORS, Code2Wav
from sonorant.engine.model.codec.codec_encoder import CodecEncoder
from sonorant.engine.model.weights import TensorFile, load_module
from sonorant.training.codec.encode import load_encoder
from sonorant.training.codec.quantizer import BookGroup
from sonorant.training.codec.settings import CodecSettings
from sonorant.training.codec.stage1 import QuantizedEncoder

CPU = torch.device("cpu")
USAGE = 6.0  # vectors of a batch for each code, with which the moving averages of trained books begin


def load_codec(checkpoint_folder: Path, settings: CodecSettings) -> tuple[CodecEncoder, QuantizedEncoder, Code2Wav]:
    """Load the modules that `write_codec_weights` takes, on the CPU. Stage 1's head is not in a checkpoint: its weights
    are random."""
    file = TensorFile(checkpoint_folder / "speech_tokenizer" / "model.safetensors")
    encoder = load_encoder(checkpoint_folder, CPU)
    books = QuantizedEncoder(encoder, settings)
    _load_group(books.first, file, "semantic", "rvq_first")
    _load_group(books.rest, file, "acoustic", "rvq_rest")
    return encoder, books.eval(), load_code2wav(checkpoint_folder).requires_grad_(True)


def load_code2wav(checkpoint_folder: Path) -> Code2Wav:
    code2wav = Code2Wav(load_checkpoint(checkpoint_folder).codec.decoder)
    file = TensorFile(checkpoint_folder / "speech_tokenizer" / "model.safetensors")
    load_module(code2wav, file, "decoder.", CPU, torch.float32, optional_unused=UNUSED_TENSORS)
    return code2wav


@torch.no_grad()
def _load_group(group: BookGroup, file: TensorFile, encoder_name: str, decoder_name: str) -> None:
    place = f"encoder.quantizer.{encoder_name}_residual_vector_quantizer"
    projections = {
        group.input_proj: f"{place}.input_proj",
        group.output_proj: f"decoder.quantizer.{decoder_name}.output_proj",
    }
    for projection, name in projections.items():
        projection.weight.copy_(_tensor(file, f"{name}.weight"))
    for book, entries in enumerate(group.entries):
        entries.copy_(_tensor(file, f"{place}.layers.{book}.codebook.embed_sum"))  # divided by a usage of one
    group.usage.fill_(USAGE)
    group.sums.copy_(USAGE * group.entries)


def _tensor(file: TensorFile, name: str) -> torch.Tensor:
    return file.load([name], CPU, torch.float32)[name]
