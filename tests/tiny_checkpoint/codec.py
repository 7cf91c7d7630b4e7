"""Names and shapes of the codec's weights."""

from tests.tiny_checkpoint.layers import Shapes, conv, linear, mlp_shapes, snake, transposed_conv
from tests.tiny_checkpoint.sizes import TinySizes


def codec_decoder_shapes(s: TinySizes) -> Shapes:
    vector = s.codec_dim // 2
    t = "decoder.pre_transformer."
    attention = s.heads * s.head_dim
    shapes: Shapes = {
        t + "norm.weight": (s.codec_hidden,),
        **linear(t + "input_proj", s.codec_hidden, s.codec_dim),
        **linear(t + "output_proj", s.codec_dim, s.codec_hidden),
        **conv("decoder.pre_conv.conv", s.codec_dim, s.codec_dim, 3),
    }
    for group, books in (("rvq_first", 1), ("rvq_rest", s.codebooks - 1)):
        q = f"decoder.quantizer.{group}."
        shapes[q + "input_proj.weight"] = (vector, s.codec_dim, 1)
        shapes[q + "output_proj.weight"] = (s.codec_dim, vector, 1)
        for i in range(books):
            shapes[f"{q}vq.layers.{i}._codebook.cluster_usage"] = (s.codebook_size,)
            shapes[f"{q}vq.layers.{i}._codebook.embedding_sum"] = (s.codebook_size, vector)
    for i in range(s.codec_layers):
        layer = f"{t}layers.{i}."
        shapes |= {
            layer + "input_layernorm.weight": (s.codec_hidden,),
            layer + "post_attention_layernorm.weight": (s.codec_hidden,),
            layer + "self_attn_layer_scale.scale": (s.codec_hidden,),
            layer + "mlp_layer_scale.scale": (s.codec_hidden,),
            **{layer + f"self_attn.{x}_proj.weight": (attention, s.codec_hidden) for x in "qkv"},
            layer + "self_attn.o_proj.weight": (s.codec_hidden, attention),
            **mlp_shapes(layer, s.codec_hidden, s.intermediate),
        }
    for i in (0, 1):
        block = f"decoder.upsample.{i}."
        shapes |= transposed_conv(block + "0.conv", s.codec_dim, s.codec_dim, 2)
        shapes |= conv(block + "1.dwconv.conv", s.codec_dim, 1, 7)
        shapes |= linear(block + "1.norm", s.codec_dim)
        shapes |= linear(block + "1.pwconv1", 4 * s.codec_dim, s.codec_dim)
        shapes |= linear(block + "1.pwconv2", s.codec_dim, 4 * s.codec_dim)
        shapes[block + "1.gamma"] = (s.codec_dim,)
    shapes |= conv("decoder.decoder.0.conv", s.decoder_dim, s.codec_dim, 7)
    width = s.decoder_dim
    for i, rate in enumerate(s.upsample_rates, start=1):
        block = f"decoder.decoder.{i}.block."
        shapes |= snake(block + "0", width)
        shapes |= transposed_conv(block + "1.conv", width, width // 2, 2 * rate)
        width //= 2
        for unit in ("2", "3", "4"):
            shapes |= snake(block + unit + ".act1", width) | snake(block + unit + ".act2", width)
            shapes |= conv(block + unit + ".conv1.conv", width, width, 7)
            shapes |= conv(block + unit + ".conv2.conv", width, width, 1)
    last = len(s.upsample_rates) + 1
    return shapes | snake(f"decoder.decoder.{last}", width) | conv(f"decoder.decoder.{last + 1}.conv", 1, width, 7)


def codec_encoder_shapes(s: TinySizes) -> Shapes:
    width, layer = 4, "encoder.encoder.layers."
    shapes = conv(layer + "0.conv", width, 1, 7)
    for i, stride in enumerate((4, 5, 6, 8)):
        shapes |= conv(f"{layer}{3 * i + 1}.block.1.conv", width // 2, width, 3)
        shapes |= conv(f"{layer}{3 * i + 1}.block.3.conv", width, width // 2, 1)
        shapes |= conv(f"{layer}{3 * i + 3}.conv", 2 * width, width, 2 * stride)
        width *= 2
    hidden = s.encoder_hidden
    shapes |= conv(layer + "14.conv", hidden, width, 3)
    shapes["encoder.downsample.conv.weight"] = (hidden, hidden, 4)
    for i in range(2):
        t = f"encoder.encoder_transformer.layers.{i}."
        shapes |= linear(t + "input_layernorm", hidden) | linear(t + "post_attention_layernorm", hidden)
        shapes |= {t + f"self_attn.{x}_proj.weight": (hidden, hidden) for x in "qkvo"}
        shapes[t + "self_attn_layer_scale.scale"] = shapes[t + "mlp_layer_scale.scale"] = (hidden,)
        shapes[t + "mlp.fc1.weight"] = (s.intermediate, hidden)
        shapes[t + "mlp.fc2.weight"] = (hidden, s.intermediate)
    for group, books in (("semantic", 1), ("acoustic", s.encoder_quantizers - 1)):
        q = f"encoder.quantizer.{group}_residual_vector_quantizer."
        shapes[q + "input_proj.weight"] = (16, hidden, 1)
        shapes[q + "output_proj.weight"] = (hidden, 16, 1)
        for i in range(books):
            book = f"{q}layers.{i}.codebook."
            shapes[book + "embed_sum"] = (s.codebook_size, 16)
            shapes[book + "cluster_usage"] = (s.codebook_size,)
            shapes[book + "initialized"] = (1,)
    return shapes
