"""Names and shapes of the codec encoder's tensors, without the network: importing Mimi takes seconds at each start.

The names are those of `engine.model.codec_encoder`, which a test holds against this list. Where a checkpoint says
nothing, the defaults of transformers' MimiConfig count.
"""

from transformers import MimiConfig

from engine.checkpoint import CodecConfig
from engine.errors import CheckpointError

Shapes = dict[str, tuple[int, ...]]


def mimi_config(config: CodecConfig, **changes: int) -> MimiConfig:
    try:
        return MimiConfig(**{**config.encoder, **changes}, attn_implementation="sdpa")
    except Exception as error:  # transformers raises nothing narrower, in more than one line
        raise CheckpointError(f"encoder_config of the codec: {' '.join(str(error).split())}") from error


def codec_encoder_shapes(config: CodecConfig) -> Shapes:
    mimi = mimi_config(config)
    stride = int(mimi.encodec_frame_rate / mimi.frame_rate)
    return {
        **_convolutions(mimi),
        **_transformer(mimi),
        "downsample.conv.weight": (mimi.hidden_size, mimi.hidden_size, 2 * stride),
        **_quantizer(mimi, "semantic", mimi.num_semantic_quantizers),
        **_quantizer(mimi, "acoustic", mimi.num_quantizers - mimi.num_semantic_quantizers),
    }


def _convolutions(mimi: MimiConfig) -> Shapes:
    width = mimi.num_filters
    shapes = _conv("encoder.layers.0.conv", width, mimi.audio_channels, mimi.kernel_size)
    place = 1
    for rate in reversed(mimi.upsampling_ratios):
        for _ in range(mimi.num_residual_layers):
            unit, narrow = f"encoder.layers.{place}", width // mimi.compress
            shapes |= _conv(f"{unit}.block.1.conv", narrow, width, mimi.residual_kernel_size)
            shapes |= _conv(f"{unit}.block.3.conv", width, narrow, 1)
            if mimi.use_conv_shortcut:
                shapes |= _conv(f"{unit}.shortcut.conv", width, width, 1)
            place += 1
        shapes |= _conv(f"encoder.layers.{place + 1}.conv", 2 * width, width, 2 * rate)  # after an activation
        width, place = 2 * width, place + 2
    return shapes | _conv(f"encoder.layers.{place + 1}.conv", mimi.hidden_size, width, mimi.last_kernel_size)


def _transformer(mimi: MimiConfig) -> Shapes:
    hidden, size = mimi.hidden_size, mimi.intermediate_size
    query, kv = mimi.num_attention_heads * mimi.head_dim, mimi.num_key_value_heads * mimi.head_dim
    matrices = {
        "self_attn.q_proj": (query, hidden),
        "self_attn.k_proj": (kv, hidden),
        "self_attn.v_proj": (kv, hidden),
        "self_attn.o_proj": (hidden, query),
        "mlp.fc1": (size, hidden),
        "mlp.fc2": (hidden, size),
    }
    shapes: Shapes = {}
    for i in range(mimi.num_hidden_layers):
        layer = f"encoder_transformer.layers.{i}."
        shapes |= {f"{layer}{name}.weight": shape for name, shape in matrices.items()}
        if mimi.attention_bias:
            shapes |= {f"{layer}{n}.bias": s[:1] for n, s in matrices.items() if n.startswith("self_attn")}
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{layer}{norm}.weight"] = shapes[f"{layer}{norm}.bias"] = (hidden,)
        shapes[layer + "self_attn_layer_scale.scale"] = shapes[layer + "mlp_layer_scale.scale"] = (hidden,)
    return shapes


def _quantizer(mimi: MimiConfig, group: str, num_books: int) -> Shapes:
    prefix = f"quantizer.{group}_residual_vector_quantizer."
    vector = mimi.vector_quantization_hidden_dimension
    shapes: Shapes = {
        prefix + "input_proj.weight": (vector, mimi.hidden_size, 1),
        prefix + "output_proj.weight": (mimi.hidden_size, vector, 1),
    }
    for i in range(num_books):
        book = f"{prefix}layers.{i}.codebook."
        shapes[book + "embed_sum"] = (mimi.codebook_size, mimi.codebook_dim)
        shapes[book + "cluster_usage"] = (mimi.codebook_size,)
        shapes[book + "initialized"] = (1,)
    return shapes


def _conv(name: str, num_out: int, num_in: int, kernel: int) -> Shapes:
    return {name + ".weight": (num_out, num_in, kernel), name + ".bias": (num_out,)}
