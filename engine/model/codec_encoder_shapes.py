"""Names and shapes of the codec encoder's tensors, without transformers: importing it takes seconds at each start.

The names are those of `engine.model.codec_encoder`, which a test holds against this list.
"""

import math

from engine.checkpoint import CodecConfig
from engine.checkpoint_json import CODEC_ENCODER_DEFAULTS, Section
from engine.errors import CheckpointError

Shapes = dict[str, tuple[int, ...]]


def codec_encoder_shapes(config: CodecConfig) -> Shapes:
    """Raises CheckpointError if the settings make no network."""
    mimi = Section("codec", {"encoder_config": config.encoder}).section("encoder_config", CODEC_ENCODER_DEFAULTS)
    hidden, num_books = mimi.size("hidden_size"), mimi.size("num_quantizers")
    num_semantic = mimi.size("num_semantic_quantizers")
    if num_semantic >= num_books:
        raise CheckpointError(f"{mimi.path}: num_semantic_quantizers must be less than num_quantizers {num_books}")
    return {
        **_convolutions(mimi),
        **_transformer(mimi),
        "downsample.conv.weight": (hidden, hidden, 2 * _stride(mimi)),
        **_quantizer(mimi, "semantic", num_semantic),
        **_quantizer(mimi, "acoustic", num_books - num_semantic),
    }


def _stride(mimi: Section) -> int:
    """How many vectors of the convolutions make a frame: two, unless the file names a frame rate, under either key."""
    sample_rate, hop_samples = mimi.size("sampling_rate"), math.prod(mimi.sizes("upsampling_ratios"))
    key = "_frame_rate" if mimi.has("_frame_rate") else "frame_rate"
    frame_rate = mimi.number(key) if mimi.has(key) else sample_rate / (2 * hop_samples)
    if frame_rate <= 0:
        raise CheckpointError(f"{mimi.path}: {key} must be more than 0, not {frame_rate:g}")
    return int(math.ceil(sample_rate / hop_samples) / frame_rate)


def _convolutions(mimi: Section) -> Shapes:
    width = mimi.size("num_filters")
    shapes = _conv("encoder.layers.0.conv", width, mimi.size("audio_channels"), mimi.size("kernel_size"))
    place = 1
    for rate in reversed(mimi.sizes("upsampling_ratios")):
        for _ in range(mimi.size("num_residual_layers")):
            unit, narrow = f"encoder.layers.{place}", width // mimi.size("compress")
            shapes |= _conv(f"{unit}.block.1.conv", narrow, width, mimi.size("residual_kernel_size"))
            shapes |= _conv(f"{unit}.block.3.conv", width, narrow, 1)
            if mimi.flag("use_conv_shortcut"):
                shapes |= _conv(f"{unit}.shortcut.conv", width, width, 1)
            place += 1
        shapes |= _conv(f"encoder.layers.{place + 1}.conv", 2 * width, width, 2 * rate)  # after an activation
        width, place = 2 * width, place + 2
    last = f"encoder.layers.{place + 1}.conv"
    return shapes | _conv(last, mimi.size("hidden_size"), width, mimi.size("last_kernel_size"))


def _transformer(mimi: Section) -> Shapes:
    hidden, size = mimi.size("hidden_size"), mimi.size("intermediate_size")
    num_heads = mimi.size("num_attention_heads")
    head = mimi.size("head_dim") if mimi.has("head_dim") else hidden // num_heads
    query, kv = num_heads * head, mimi.size("num_key_value_heads") * head
    matrices = {
        "self_attn.q_proj": (query, hidden),
        "self_attn.k_proj": (kv, hidden),
        "self_attn.v_proj": (kv, hidden),
        "self_attn.o_proj": (hidden, query),
        "mlp.fc1": (size, hidden),
        "mlp.fc2": (hidden, size),
    }
    shapes: Shapes = {}
    for i in range(mimi.size("num_hidden_layers")):
        layer = f"encoder_transformer.layers.{i}."
        shapes |= {f"{layer}{name}.weight": shape for name, shape in matrices.items()}
        if mimi.flag("attention_bias"):
            shapes |= {f"{layer}{n}.bias": s[:1] for n, s in matrices.items() if n.startswith("self_attn")}
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{layer}{norm}.weight"] = shapes[f"{layer}{norm}.bias"] = (hidden,)
        shapes[layer + "self_attn_layer_scale.scale"] = shapes[layer + "mlp_layer_scale.scale"] = (hidden,)
    return shapes


def _quantizer(mimi: Section, group: str, num_books: int) -> Shapes:
    prefix = f"quantizer.{group}_residual_vector_quantizer."
    hidden, vector = mimi.size("hidden_size"), mimi.size("vector_quantization_hidden_dimension")
    num_codes = mimi.size("codebook_size")
    shapes: Shapes = {
        prefix + "input_proj.weight": (vector, hidden, 1),
        prefix + "output_proj.weight": (hidden, vector, 1),
    }
    for i in range(num_books):
        book = f"{prefix}layers.{i}.codebook."
        shapes[book + "embed_sum"] = (num_codes, mimi.size("codebook_dim"))
        shapes[book + "cluster_usage"] = (num_codes,)
        shapes[book + "initialized"] = (1,)
    return shapes


def _conv(name: str, num_out: int, num_in: int, kernel: int) -> Shapes:
    return {name + ".weight": (num_out, num_in, kernel), name + ".bias": (num_out,)}
