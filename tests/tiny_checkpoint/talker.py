"""Names and shapes of the talker's weights, code predictor and speaker encoder included."""

from tests.tiny_checkpoint.configs import speaker_encoder_config
from tests.tiny_checkpoint.layers import Shapes, conv, linear, mlp_shapes
from tests.tiny_checkpoint.sizes import TinySizes


def talker_shapes(s: TinySizes, *, text_vocab_size: int) -> Shapes:
    vocab_size = s.codebook_size + 1024
    p = "talker.code_predictor."
    shapes: Shapes = {
        "talker.model.text_embedding.weight": (text_vocab_size, s.text_hidden),
        "talker.model.codec_embedding.weight": (vocab_size, s.hidden),
        "talker.codec_head.weight": (vocab_size, s.hidden),
        **linear("talker.text_projection.linear_fc1", s.text_hidden, s.text_hidden),
        **linear("talker.text_projection.linear_fc2", s.hidden, s.text_hidden),
        **_decoder_shapes("talker.model.", s, s.hidden, s.layers),
        **_decoder_shapes(p + "model.", s, s.predictor_hidden, s.predictor_layers),
    }
    for i in range(s.codebooks - 1):
        shapes[f"{p}model.codec_embedding.{i}.weight"] = (s.codebook_size, s.hidden)
        shapes[f"{p}lm_head.{i}.weight"] = (s.codebook_size, s.predictor_hidden)
    if s.predictor_hidden != s.hidden:
        shapes |= linear(p + "small_to_mtp_projection", s.predictor_hidden, s.hidden)
    return shapes


def _decoder_shapes(prefix: str, s: TinySizes, hidden: int, layers: int) -> Shapes:
    q_size, kv_size = s.heads * s.head_dim, s.kv_heads * s.head_dim
    shapes: Shapes = {prefix + "norm.weight": (hidden,)}
    for i in range(layers):
        layer = f"{prefix}layers.{i}."
        shapes |= {
            layer + "input_layernorm.weight": (hidden,),
            layer + "post_attention_layernorm.weight": (hidden,),
            layer + "self_attn.q_proj.weight": (q_size, hidden),
            layer + "self_attn.k_proj.weight": (kv_size, hidden),
            layer + "self_attn.v_proj.weight": (kv_size, hidden),
            layer + "self_attn.o_proj.weight": (hidden, q_size),
            layer + "self_attn.q_norm.weight": (s.head_dim,),
            layer + "self_attn.k_norm.weight": (s.head_dim,),
            **mlp_shapes(layer, hidden, s.intermediate),
        }
    return shapes


def speaker_encoder_shapes(s: TinySizes) -> Shapes:
    c = speaker_encoder_config(s)
    channels, wide, scale = c["enc_channels"][0], c["enc_channels"][4], c["enc_res2net_scale"]
    attention, squeeze, part = c["enc_attention_channels"], c["enc_se_channels"], channels // scale
    shapes = conv("speaker_encoder.blocks.0.conv", channels, 128, 5)
    for i in (1, 2, 3):
        block = f"speaker_encoder.blocks.{i}."
        shapes |= conv(block + "tdnn1.conv", channels, channels, 1)
        shapes |= conv(block + "tdnn2.conv", channels, channels, 1)
        shapes |= conv(block + "se_block.conv1", squeeze, channels, 1)
        shapes |= conv(block + "se_block.conv2", channels, squeeze, 1)
        for j in range(scale - 1):
            shapes |= conv(f"{block}res2net_block.blocks.{j}.conv", part, part, 3)
    shapes |= conv("speaker_encoder.mfa.conv", wide, 3 * channels, 1)
    shapes |= conv("speaker_encoder.asp.tdnn.conv", attention, 3 * wide, 1)
    shapes |= conv("speaker_encoder.asp.conv", wide, attention, 1)
    return shapes | conv("speaker_encoder.fc", s.hidden, 2 * wide, 1)
