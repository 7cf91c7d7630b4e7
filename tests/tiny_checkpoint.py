"""Writes complete checkpoints of a few hundred kilobytes in the published layout, for tests.

Weights depend on the seed and the tensor's name alone, and the files on nothing but numpy and safetensors, so that the
official package's environment (see tests/parity) writes the same bytes as ours.
"""

import json
import math
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

Shapes = dict[str, tuple[int, ...]]

LANGUAGES = ("chinese", "english", "german")
DIALECT = "sichuan_dialect"
SPEAKERS = {"vivian": False, "eric": DIALECT, "ryan": False}  # name -> dialect
WORDS = "assistant user the quick brown fox jumps over lazy dog hello world speak slowly with joy and today is fine"


@dataclass(frozen=True)
class TinySizes:
    """The published shape, shrunk. `predictor_hidden` equal to `hidden` leaves out small_to_mtp_projection, as 0.6B."""

    size_tag: str = "1b7"
    hidden: int = 32
    intermediate: int = 48
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 8
    text_hidden: int = 24
    predictor_hidden: int = 16
    predictor_layers: int = 2
    codebooks: int = 4
    codebook_size: int = 64
    codec_dim: int = 32  # codebook_dim and latent_dim of the codec
    codec_hidden: int = 16
    codec_layers: int = 2
    codec_window: int = 8
    decoder_dim: int = 32
    upsample_rates: tuple[int, ...] = (8, 5, 4, 3)
    encoder_hidden: int = 32
    encoder_quantizers: int = 6


def write_tiny_checkpoint(folder: Path, task: str = "custom_voice", *, seed: int = 0, **sizes: Any) -> Path:
    """Write a checkpoint for `task` (custom_voice, voice_design or base) into `folder` and return it."""
    s = TinySizes(**sizes)
    codec_folder = folder / "speech_tokenizer"
    codec_folder.mkdir(parents=True, exist_ok=True)
    vocab, merges, specials = tokenizer_tables()
    _write_json(folder / "config.json", _config(s, task, vocab, specials))
    _write_json(folder / "generation_config.json", _generation_config())
    _write_json(folder / "vocab.json", vocab)
    (folder / "merges.txt").write_text("".join(f"{a} {b}\n" for a, b in merges), encoding="utf-8")
    _write_json(folder / "tokenizer_config.json", _tokenizer_config(specials))
    _write_json(codec_folder / "config.json", _codec_config(s))
    _write_json(codec_folder / "preprocessor_config.json", _preprocessor_config())
    talker = _talker_shapes(s, text_vocab_size=_text_vocab_size(vocab, specials))
    main = talker | (_speaker_encoder_shapes(s) if task == "base" else {})
    save_file(_weights(main, seed), folder / "model.safetensors", {"format": "pt"})
    codec = _codec_decoder_shapes(s) | _codec_encoder_shapes(s)
    save_file(_weights(codec, seed), codec_folder / "model.safetensors", {"format": "pt"})
    return folder


def tokenizer_tables() -> tuple[dict[str, int], list[tuple[str, str]], dict[str, int]]:
    """A byte-level BPE: every byte, and each of WORDS (alone and after a space) merged from left to right."""
    vocab = {symbol: i for i, symbol in enumerate(_byte_symbols())}
    merges: dict[tuple[str, str], None] = {}
    for word in (prefix + plain for plain in WORDS.split() for prefix in ("", "Ġ")):
        for i in range(1, len(word)):
            merges[word[:i], word[i]] = None
            vocab.setdefault(word[: i + 1], len(vocab))
    names = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tts_pad>", "<tts_text_bos>", "<tts_text_eod>")
    return vocab, list(merges), {name: len(vocab) + i for i, name in enumerate(names)}


def _byte_symbols() -> list[str]:
    """The 256 printable stand-ins of byte-level BPE, in the usual order."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [b for b in range(256) if b not in printable]
    return [chr(b) for b in printable] + [chr(256 + i) for i in range(len(others))]


def _text_vocab_size(vocab: dict[str, int], specials: dict[str, int]) -> int:
    return math.ceil((len(vocab) + len(specials)) / 64) * 64


def _config(s: TinySizes, task: str, vocab: dict[str, int], specials: dict[str, int]) -> dict[str, Any]:
    control = s.codebook_size  # ids from here on are no codes
    stack = {
        "intermediate_size": s.intermediate,
        "num_attention_heads": s.heads,
        "num_key_value_heads": s.kv_heads,
        "head_dim": s.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-06,
        "rope_theta": 1000000,
        "attention_bias": False,
        "num_code_groups": s.codebooks,
    }
    speakers = SPEAKERS if task == "custom_voice" else {}
    languages = (*LANGUAGES, DIALECT) if task == "custom_voice" else LANGUAGES
    talker = stack | {
        "hidden_size": s.hidden,
        "num_hidden_layers": s.layers,
        "vocab_size": s.codebook_size + 1024,
        "text_vocab_size": _text_vocab_size(vocab, specials),
        "text_hidden_size": s.text_hidden,
        "rope_scaling": {"interleaved": True, "mrope_section": _mrope_section(s.head_dim), "rope_type": "default"},
        "codec_pad_id": control + 40,
        "codec_bos_id": control + 41,
        "codec_eos_token_id": control + 42,
        "codec_think_id": control + 43,
        "codec_nothink_id": control + 44,
        "codec_think_bos_id": control + 45,
        "codec_think_eos_id": control + 46,
        "codec_language_id": {name: control + i for i, name in enumerate(languages)},
        "spk_id": {name: control + 100 + i for i, name in enumerate(speakers)},
        "spk_is_dialect": speakers,
        "code_predictor_config": stack
        | {"hidden_size": s.predictor_hidden, "num_hidden_layers": s.predictor_layers, "vocab_size": s.codebook_size},
    }
    return {
        "architectures": ["Qwen3TTSForConditionalGeneration"],
        "model_type": "qwen3_tts",
        "tokenizer_type": "qwen3_tts_tokenizer_12hz",
        "tts_model_size": s.size_tag,
        "tts_model_type": task,
        "dtype": "float32",
        "assistant_token_id": vocab["assistant"],
        "im_start_token_id": specials["<|im_start|>"],
        "im_end_token_id": specials["<|im_end|>"],
        "tts_pad_token_id": specials["<tts_pad>"],
        "tts_bos_token_id": specials["<tts_text_bos>"],
        "tts_eos_token_id": specials["<tts_text_eod>"],
        "speaker_encoder_config": _speaker_encoder_config(s) if task == "base" else {},
        "talker_config": talker,
    }


def _mrope_section(head_dim: int) -> list[int]:
    third = head_dim // 2 // 3
    return [head_dim // 2 - 2 * third, third, third]


def _generation_config() -> dict[str, Any]:
    own = {"do_sample": True, "repetition_penalty": 1.05, "temperature": 0.9, "top_p": 1.0, "top_k": 50}
    subtalker = {
        "subtalker_dosample": True,
        "subtalker_temperature": 0.9,
        "subtalker_top_p": 1.0,
        "subtalker_top_k": 50,
    }
    return own | subtalker | {"max_new_tokens": 256}


def _tokenizer_config(specials: dict[str, int]) -> dict[str, Any]:
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    return {
        "add_prefix_space": False,
        "added_tokens_decoder": {str(i): {"content": name} | flags for name, i in specials.items()},
        "additional_special_tokens": list(specials)[1:],
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "unk_token": None,
        "model_max_length": 131072,
        "tokenizer_class": "Qwen2Tokenizer",
    }


def _preprocessor_config() -> dict[str, Any]:
    return {
        "feature_extractor_type": "EncodecFeatureExtractor",
        "feature_size": 1,
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": True,
        "sampling_rate": 24000,
    }


def _speaker_encoder_config(s: TinySizes) -> dict[str, Any]:
    return {
        "enc_dim": s.hidden,
        "sample_rate": 24000,
        "enc_channels": [16, 16, 16, 16, 48],
        "enc_attention_channels": 8,
        "enc_res2net_scale": 4,
        "enc_se_channels": 8,
    }


def _codec_config(s: TinySizes) -> dict[str, Any]:
    frame_samples = math.prod(s.upsample_rates) * 4
    decoder = {
        "codebook_dim": s.codec_dim,
        "codebook_size": s.codebook_size,
        "latent_dim": s.codec_dim,
        "hidden_size": s.codec_hidden,
        "intermediate_size": s.intermediate,
        "num_hidden_layers": s.codec_layers,
        "num_attention_heads": s.heads,
        "num_key_value_heads": s.heads,
        "head_dim": s.head_dim,
        "sliding_window": s.codec_window,
        "num_quantizers": s.codebooks,
        "num_semantic_quantizers": 1,
        "decoder_dim": s.decoder_dim,
        "upsample_rates": s.upsample_rates,
        "upsampling_ratios": [2, 2],
        "rope_theta": 10000,
        "rms_norm_eps": 1e-05,
    }
    encoder = {
        "model_type": "mimi",
        "_frame_rate": 12.5,
        "sampling_rate": 24000,
        "audio_channels": 1,
        "hidden_size": s.encoder_hidden,
        "num_filters": 4,
        "num_residual_layers": 1,
        "upsampling_ratios": [8, 6, 5, 4],
        "codebook_size": s.codebook_size,
        "codebook_dim": 16,
        "vector_quantization_hidden_dimension": 16,
        "num_quantizers": s.encoder_quantizers,
        "num_semantic_quantizers": 1,
        "upsample_groups": s.encoder_hidden,
        "num_hidden_layers": 2,
        "intermediate_size": s.intermediate,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": s.encoder_hidden // 2,
        "sliding_window": 250,
        "use_cache": False,
    }
    return {
        "architectures": ["Qwen3TTSTokenizerV2Model"],
        "model_type": "qwen3_tts_tokenizer_12hz",
        "encoder_valid_num_quantizers": s.codebooks,
        "input_sample_rate": 24000,
        "output_sample_rate": 24000,
        "decode_upsample_rate": frame_samples,
        "encode_downsample_rate": 1920,
        "decoder_config": decoder,
        "encoder_config": encoder,
    }


def _talker_shapes(s: TinySizes, *, text_vocab_size: int) -> Shapes:
    vocab_size = s.codebook_size + 1024
    p = "talker.code_predictor."
    shapes: Shapes = {
        "talker.model.text_embedding.weight": (text_vocab_size, s.text_hidden),
        "talker.model.codec_embedding.weight": (vocab_size, s.hidden),
        "talker.codec_head.weight": (vocab_size, s.hidden),
        **_linear("talker.text_projection.linear_fc1", s.text_hidden, s.text_hidden),
        **_linear("talker.text_projection.linear_fc2", s.hidden, s.text_hidden),
        **_decoder_shapes("talker.model.", s, s.hidden, s.layers),
        **_decoder_shapes(p + "model.", s, s.predictor_hidden, s.predictor_layers),
    }
    for i in range(s.codebooks - 1):
        shapes[f"{p}model.codec_embedding.{i}.weight"] = (s.codebook_size, s.hidden)
        shapes[f"{p}lm_head.{i}.weight"] = (s.codebook_size, s.predictor_hidden)
    if s.predictor_hidden != s.hidden:
        shapes |= _linear(p + "small_to_mtp_projection", s.predictor_hidden, s.hidden)
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
            **_mlp_shapes(layer, hidden, s.intermediate),
        }
    return shapes


def _mlp_shapes(layer: str, hidden: int, intermediate: int) -> Shapes:
    return {
        layer + "mlp.gate_proj.weight": (intermediate, hidden),
        layer + "mlp.up_proj.weight": (intermediate, hidden),
        layer + "mlp.down_proj.weight": (hidden, intermediate),
    }


def _speaker_encoder_shapes(s: TinySizes) -> Shapes:
    c = _speaker_encoder_config(s)
    channels, wide, scale = c["enc_channels"][0], c["enc_channels"][4], c["enc_res2net_scale"]
    attention, squeeze, part = c["enc_attention_channels"], c["enc_se_channels"], channels // scale
    shapes = _conv("speaker_encoder.blocks.0.conv", channels, 128, 5)
    for i in (1, 2, 3):
        block = f"speaker_encoder.blocks.{i}."
        shapes |= _conv(block + "tdnn1.conv", channels, channels, 1)
        shapes |= _conv(block + "tdnn2.conv", channels, channels, 1)
        shapes |= _conv(block + "se_block.conv1", squeeze, channels, 1)
        shapes |= _conv(block + "se_block.conv2", channels, squeeze, 1)
        for j in range(scale - 1):
            shapes |= _conv(f"{block}res2net_block.blocks.{j}.conv", part, part, 3)
    shapes |= _conv("speaker_encoder.mfa.conv", wide, 3 * channels, 1)
    shapes |= _conv("speaker_encoder.asp.tdnn.conv", attention, 3 * wide, 1)
    shapes |= _conv("speaker_encoder.asp.conv", wide, attention, 1)
    return shapes | _conv("speaker_encoder.fc", s.hidden, 2 * wide, 1)


def _codec_decoder_shapes(s: TinySizes) -> Shapes:
    vector = s.codec_dim // 2
    t = "decoder.pre_transformer."
    attention = s.heads * s.head_dim
    shapes: Shapes = {
        t + "norm.weight": (s.codec_hidden,),
        **_linear(t + "input_proj", s.codec_hidden, s.codec_dim),
        **_linear(t + "output_proj", s.codec_dim, s.codec_hidden),
        **_conv("decoder.pre_conv.conv", s.codec_dim, s.codec_dim, 3),
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
            **_mlp_shapes(layer, s.codec_hidden, s.intermediate),
        }
    for i in (0, 1):
        block = f"decoder.upsample.{i}."
        shapes |= _transposed_conv(block + "0.conv", s.codec_dim, s.codec_dim, 2)
        shapes |= _conv(block + "1.dwconv.conv", s.codec_dim, 1, 7)
        shapes |= _linear(block + "1.norm", s.codec_dim)
        shapes |= _linear(block + "1.pwconv1", 4 * s.codec_dim, s.codec_dim)
        shapes |= _linear(block + "1.pwconv2", s.codec_dim, 4 * s.codec_dim)
        shapes[block + "1.gamma"] = (s.codec_dim,)
    shapes |= _conv("decoder.decoder.0.conv", s.decoder_dim, s.codec_dim, 7)
    width = s.decoder_dim
    for i, rate in enumerate(s.upsample_rates, start=1):
        block = f"decoder.decoder.{i}.block."
        shapes |= _snake(block + "0", width)
        shapes |= _transposed_conv(block + "1.conv", width, width // 2, 2 * rate)
        width //= 2
        for unit in ("2", "3", "4"):
            shapes |= _snake(block + unit + ".act1", width) | _snake(block + unit + ".act2", width)
            shapes |= _conv(block + unit + ".conv1.conv", width, width, 7)
            shapes |= _conv(block + unit + ".conv2.conv", width, width, 1)
    last = len(s.upsample_rates) + 1
    return shapes | _snake(f"decoder.decoder.{last}", width) | _conv(f"decoder.decoder.{last + 1}.conv", 1, width, 7)


def _codec_encoder_shapes(s: TinySizes) -> Shapes:
    width, layer = 4, "encoder.encoder.layers."
    shapes = _conv(layer + "0.conv", width, 1, 7)
    for i, stride in enumerate((4, 5, 6, 8)):
        shapes |= _conv(f"{layer}{3 * i + 1}.block.1.conv", width // 2, width, 3)
        shapes |= _conv(f"{layer}{3 * i + 1}.block.3.conv", width, width // 2, 1)
        shapes |= _conv(f"{layer}{3 * i + 3}.conv", 2 * width, width, 2 * stride)
        width *= 2
    hidden = s.encoder_hidden
    shapes |= _conv(layer + "14.conv", hidden, width, 3)
    shapes["encoder.downsample.conv.weight"] = (hidden, hidden, 4)
    for i in range(2):
        t = f"encoder.encoder_transformer.layers.{i}."
        shapes |= _linear(t + "input_layernorm", hidden) | _linear(t + "post_attention_layernorm", hidden)
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


def _linear(name: str, *shape: int) -> Shapes:
    return {name + ".weight": shape, name + ".bias": shape[:1]}


def _conv(name: str, num_out: int, num_in: int, kernel: int) -> Shapes:
    return {name + ".weight": (num_out, num_in, kernel), name + ".bias": (num_out,)}


def _transposed_conv(name: str, num_in: int, num_out: int, kernel: int) -> Shapes:
    return {name + ".weight": (num_in, num_out, kernel), name + ".bias": (num_out,)}


def _snake(name: str, channels: int) -> Shapes:
    return {name + ".alpha": (channels,), name + ".beta": (channels,)}


def _weights(shapes: Shapes, seed: int) -> dict[str, np.ndarray]:
    return {name: _weight(name, shape, seed) for name, shape in shapes.items()}


def _weight(name: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Of a scale at which every part of the network matters."""
    normal = np.random.default_rng([seed, zlib.crc32(name.encode())]).standard_normal(shape).astype(np.float32)
    kind = name.rpartition(".")[2]
    if kind == "initialized":
        return np.ones(shape, np.float32)
    if kind == "cluster_usage":
        return 1.0 + np.abs(normal)
    if kind in ("scale", "gamma") or (kind == "weight" and "norm" in name):
        return 1.0 + 0.1 * normal
    if "embed" in name:
        return normal
    if len(shape) == 1:
        return 0.1 * normal  # biases, and the logs of SnakeBeta
    gain = 1.0
    if name.startswith("decoder.decoder") and shape[-1] in (1, 7):
        gain = 0.2  # residual branches of the codec's decoder; else its output saturates
    elif name.startswith("talker.") and "self_attn" in name:
        gain = 3.0  # else the codes hardly depend on what came before the last row
    return normal * np.float32(gain / math.sqrt(math.prod(shape[1:])))


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1), encoding="utf-8")
