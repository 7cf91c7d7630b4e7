"""Sizes of the codec encoder, read from the codec's `encoder_config`. Refuses what the network does not support."""

import math
from dataclasses import dataclass

from sonorant.engine.checkpoint.config import CodecConfig, TransformerConfig
from sonorant.engine.checkpoint.json import CODEC_ENCODER_DEFAULTS, Section
from sonorant.engine.errors import CheckpointError

# Values that all published codecs have, and the only ones supported.
SUPPORTED = {"audio_channels": 1, "hidden_act": "gelu", "pad_mode": "constant", "use_causal_conv": True}


@dataclass(frozen=True, slots=True)
class CodecEncoderConfig:
    num_filters: int  # of the first convolution; they double with each stride
    strides: tuple[int, ...]
    kernel_size: int
    residual_kernel_size: int
    last_kernel_size: int
    num_residual_layers: int  # before each stride
    dilation_growth_rate: int
    compress: int  # how many times narrower a residual branch is
    conv_shortcut: bool
    stack: TransformerConfig  # its norms are layer norms
    frame_stride: int  # vectors of the transformer per frame
    vector_dim: int  # of the vectors that are quantized
    codebook_size: int
    codebook_dim: int
    num_semantic: int  # codebooks
    num_acoustic: int


def codec_encoder_config(codec: CodecConfig) -> CodecEncoderConfig:
    """Read the sizes. Raises CheckpointError if a value is missing, wrong or not supported."""
    c = Section("the codec", {"encoder_config": codec.encoder}).section("encoder_config", CODEC_ENCODER_DEFAULTS)
    for key, value in SUPPORTED.items():
        if c.values[key] != value:
            raise CheckpointError(f"{c.path}: {key} is {c.values[key]!r}; only {value!r} is supported")
    num_books, num_semantic = c.size("num_quantizers"), c.size("num_semantic_quantizers")
    if num_semantic >= num_books:
        raise CheckpointError(f"{c.path}: num_semantic_quantizers must be less than num_quantizers {num_books}")
    if not num_semantic <= codec.encoder_valid_num_quantizers <= num_books:
        raise CheckpointError(
            f"{c.path}: of {num_books} codebooks (num_quantizers), {num_semantic} are semantic; "
            f"{codec.encoder_valid_num_quantizers} (encoder_valid_num_quantizers) is not between these numbers"
        )
    return CodecEncoderConfig(
        num_filters=c.size("num_filters"),
        strides=tuple(reversed(c.sizes("upsampling_ratios"))),
        kernel_size=c.size("kernel_size"),
        residual_kernel_size=c.size("residual_kernel_size"),
        last_kernel_size=c.size("last_kernel_size"),
        num_residual_layers=c.size("num_residual_layers"),
        dilation_growth_rate=c.size("dilation_growth_rate"),
        compress=c.size("compress"),
        conv_shortcut=c.flag("use_conv_shortcut"),
        stack=_stack(c),
        frame_stride=_frame_stride(c),
        vector_dim=c.size("vector_quantization_hidden_dimension"),
        codebook_size=c.size("codebook_size"),
        codebook_dim=c.size("codebook_dim"),
        num_semantic=num_semantic,
        num_acoustic=num_books - num_semantic,
    )


def _stack(c: Section) -> TransformerConfig:
    hidden_size, num_heads = c.size("hidden_size"), c.size("num_attention_heads")
    num_kv_heads = c.size("num_key_value_heads")
    if num_heads % num_kv_heads:
        raise CheckpointError(f"{c.path}: {num_heads} attention heads cannot share {num_kv_heads} key-value heads")
    return TransformerConfig(
        hidden_size=hidden_size,
        intermediate_size=c.size("intermediate_size"),
        num_layers=c.size("num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=c.size("head_dim") if c.has("head_dim") else hidden_size // num_heads,
        rms_norm_eps=c.number("norm_eps"),
        rope_theta=c.number("rope_theta"),
        attention_bias=c.flag("attention_bias"),
    )


def _frame_stride(c: Section) -> int:
    """Vectors per frame: two, unless the file gives a frame rate, as `_frame_rate` or `frame_rate`."""
    sample_rate, stride = c.size("sampling_rate"), math.prod(c.sizes("upsampling_ratios"))
    key = "_frame_rate" if c.has("_frame_rate") else "frame_rate"
    frame_rate = c.number(key) if c.has(key) else sample_rate / (2 * stride)
    vector_rate = math.ceil(sample_rate / stride)
    if not 0 < frame_rate <= vector_rate:
        raise CheckpointError(f"{c.path}: {key} must be more than 0 and at most {vector_rate}, not {frame_rate:g}")
    return int(vector_rate / frame_rate)
