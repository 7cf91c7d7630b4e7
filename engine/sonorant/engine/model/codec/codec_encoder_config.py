"""Sizes of the codec encoder, read from the codec's `encoder_config`. Refuses what the network does not support."""

import math
from dataclasses import dataclass

from sonorant.engine.checkpoint.config import CodecConfig, TransformerConfig, transformer_config
from sonorant.engine.checkpoint.json import Section, key
from sonorant.engine.errors import CheckpointError

# Values that all published codecs have, and the only ones supported.
SUPPORTED = {"audio_channels": 1, "hidden_act": "gelu", "pad_mode": "constant", "use_causal_conv": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class CodecEncoderConfig:
    """The defaults are those of transformers' MimiConfig."""

    num_filters: int = key(64)  # of the first convolution; they double with each stride
    strides: tuple[int, ...]
    kernel_size: int = key(7)
    residual_kernel_size: int = key(3)
    last_kernel_size: int = key(3)
    num_residual_layers: int = key(1)  # before each stride
    dilation_growth_rate: int = key(2)
    compress: int = key(2)  # how many times narrower a residual branch is
    conv_shortcut: bool = key(False, "use_conv_shortcut")
    stack: TransformerConfig  # its norms are layer norms
    frame_stride: int  # vectors of the transformer per frame
    vector_dim: int = key(256, "vector_quantization_hidden_dimension")  # of the vectors that are quantized
    codebook_size: int = key(2048)
    codebook_dim: int = key(256)
    num_semantic: int = key(1, "num_semantic_quantizers")  # codebooks
    num_acoustic: int


def codec_encoder_config(codec: CodecConfig) -> CodecEncoderConfig:
    """Read the sizes. Raises CheckpointError if a value is missing, wrong or not supported."""
    c = Section("the codec: encoder_config", codec.encoder)
    for name, value in SUPPORTED.items():
        if c.has(name) and c.values[name] != value:
            raise CheckpointError(f"{c.path}: {name} is {c.values[name]!r}; only {value!r} is supported")
    num_books, num_semantic = c.size("num_quantizers", 32), c.size("num_semantic_quantizers", 1)
    if num_semantic >= num_books:
        raise CheckpointError(f"{c.path}: num_semantic_quantizers must be less than num_quantizers {num_books}")
    if not num_semantic <= codec.encoder_valid_num_quantizers <= num_books:
        raise CheckpointError(
            f"{c.path}: of {num_books} codebooks (num_quantizers), {num_semantic} are semantic; "
            f"{codec.encoder_valid_num_quantizers} (encoder_valid_num_quantizers) is not between these numbers"
        )
    strides = c.sizes("upsampling_ratios", (8, 6, 5, 4))
    eps = c.number("norm_eps", 1e-5)
    return c.make(
        CodecEncoderConfig,
        strides=tuple(reversed(strides)),
        stack=transformer_config(
            c, hidden_size=512, intermediate_size=2048, num_layers=8, num_heads=8, num_kv_heads=8, rms_norm_eps=eps
        ),
        frame_stride=_frame_stride(c, math.prod(strides)),
        num_acoustic=num_books - num_semantic,
    )


def _frame_stride(c: Section, stride: int) -> int:
    """Vectors per frame: two, unless the file gives a frame rate, as `_frame_rate` or `frame_rate`."""
    sample_rate = c.size("sampling_rate", 24_000)
    name = "_frame_rate" if c.has("_frame_rate") else "frame_rate"
    frame_rate = c.number(name, sample_rate / (2 * stride))
    vector_rate = math.ceil(sample_rate / stride)
    if not 0 < frame_rate <= vector_rate:
        raise CheckpointError(f"{c.path}: {name} must be more than 0 and at most {vector_rate}, not {frame_rate:g}")
    return int(vector_rate / frame_rate)
