"""The JSON files of the tiny checkpoints, the tokenizer's excepted."""

import math
from typing import Any

from tests.tiny_checkpoint.sizes import TinySizes
from tests.tiny_checkpoint.tokenizer import text_vocab_size

LANGUAGES = ("chinese", "english", "german")
DIALECT = "sichuan_dialect"
SPEAKERS = {"vivian": False, "eric": DIALECT, "ryan": False}  # name -> dialect


def checkpoint_config(s: TinySizes, task: str, vocab: dict[str, int], specials: dict[str, int]) -> dict[str, Any]:
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
        "text_vocab_size": text_vocab_size(vocab, specials),
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
        "speaker_encoder_config": speaker_encoder_config(s) if task == "base" else {},
        "talker_config": talker,
    }


def _mrope_section(head_dim: int) -> list[int]:
    third = head_dim // 2 // 3
    return [head_dim // 2 - 2 * third, third, third]


def generation_config() -> dict[str, Any]:
    own = {"do_sample": True, "repetition_penalty": 1.05, "temperature": 0.9, "top_p": 1.0, "top_k": 50}
    subtalker = {
        "subtalker_dosample": True,
        "subtalker_temperature": 0.9,
        "subtalker_top_p": 1.0,
        "subtalker_top_k": 50,
    }
    return own | subtalker | {"max_new_tokens": 256}


def preprocessor_config() -> dict[str, Any]:
    return {
        "feature_extractor_type": "EncodecFeatureExtractor",
        "feature_size": 1,
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": True,
        "sampling_rate": 24000,
    }


def speaker_encoder_config(s: TinySizes) -> dict[str, Any]:
    return {
        "enc_dim": s.hidden,
        "sample_rate": 24000,
        "enc_channels": [16, 16, 16, 16, 48],
        "enc_attention_channels": 8,
        "enc_res2net_scale": 4,
        "enc_se_channels": 8,
    }


def codec_config(s: TinySizes) -> dict[str, Any]:
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
