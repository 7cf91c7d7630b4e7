"""Writes the published checkpoint layout: first the JSON files that training builds its modules from, then weights."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from sonorant.training.languages import LANGUAGES
from sonorant.training.references import NUM_MELS, SAMPLE_RATE_HZ
from sonorant.training.settings import SpeakerEncoderSizes, SpeakerSettings, StackSizes, TalkerSettings

TOKENIZER_FILE = "tokenizer.json"
HEAD_DIM = 64
CONTROL_IDS = 1024  # the official package bans so many ids at the end of the codec table, except the end token
MAX_NEW_TOKENS = 1024
SILENT_FIRST_FRAMES = 2  # `alignment.LEAD_S` ends in the second at the latest
ENDS_QUIETER_DB = 2.2  # at joints all three voices then change in level by at most 0.9 dB more than at other ends
MAX_SEGMENT_CHARS = 160  # `linden` and `wren`: see `tests.measure.long_texts`; the longest texts of the corpus have 330
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tts_pad>", "<tts_text_bos>", "<tts_text_eod>")


def write_config(
    folder: Path,
    settings: TalkerSettings,
    speakers: SpeakerSettings | None,
    voices: Sequence[str],
    languages: Sequence[str],
    text_folder: Path,
    codec_folder: Path,
) -> None:
    """Write config.json, generation_config.json and the text tokenizer. The codec must already be in `codec_folder`.
    With `speakers`, the checkpoint clones voices; otherwise it has `voices`."""
    encoder = _speaker_encoder(speakers.encoder, settings.stack.hidden_size) if speakers else {}
    codec = json.loads((codec_folder / "config.json").read_text())["decoder_config"]
    tokenizer = json.loads((text_folder / TOKENIZER_FILE).read_text(encoding="utf-8"))
    text_ids = tokenizer["model"]["vocab"] | {t["content"]: t["id"] for t in tokenizer["added_tokens"]}
    num_codes, num_codebooks = codec["codebook_size"], codec["num_quantizers"]
    talker = {
        "model_type": "qwen3_tts_talker",
        "vocab_size": num_codes + CONTROL_IDS,
        "text_vocab_size": len(text_ids),
        "text_hidden_size": settings.text_hidden_size,
        "num_code_groups": num_codebooks,
        **_stack(settings.stack),
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "rope_scaling": {"interleaved": True, "mrope_section": [12, 10, 10], "rope_type": "default", "type": "default"},
        "codec_pad_id": num_codes + 100,
        "codec_bos_id": num_codes + 101,
        "codec_eos_token_id": num_codes + 102,
        "codec_think_id": num_codes + 104,
        "codec_nothink_id": num_codes + 105,
        "codec_think_bos_id": num_codes + 106,
        "codec_think_eos_id": num_codes + 107,
        "codec_language_id": {language: num_codes + LANGUAGES[language] for language in languages},
        "spk_id": {voice: num_codes + 901 - i for i, voice in enumerate(voices)},
        "spk_is_dialect": dict.fromkeys(voices, False),
        "position_id_per_seconds": 13,
        "use_cache": True,
        "initializer_range": 0.02,
        "code_predictor_config": {
            "model_type": "qwen3_tts_talker_code_predictor",
            "vocab_size": num_codes,
            "num_code_groups": num_codebooks,
            **_stack(settings.predictor),
            "max_position_embeddings": 65536,
            "rms_norm_eps": 1e-6,
            "rope_theta": 10000.0,
            "rope_scaling": None,
            "use_cache": True,
            "tie_word_embeddings": False,
            "layer_types": ["full_attention"] * settings.predictor.num_layers,
            "sliding_window": None,
            "use_sliding_window": False,
            "initializer_range": 0.02,
        },
    }
    _write_json(
        folder / "config.json",
        {
            "architectures": ["Qwen3TTSForConditionalGeneration"],
            "model_type": "qwen3_tts",
            "tokenizer_type": "qwen3_tts_tokenizer_12hz",
            "tts_model_size": "tiny",
            "tts_model_type": "base" if speakers else "custom_voice",
            "assistant_token_id": text_ids["assistant"],
            "im_start_token_id": text_ids["<|im_start|>"],
            "im_end_token_id": text_ids["<|im_end|>"],
            "tts_pad_token_id": text_ids["<tts_pad>"],
            "tts_bos_token_id": text_ids["<tts_text_bos>"],
            "tts_eos_token_id": text_ids["<tts_text_eod>"],
            "dtype": "bfloat16",
            "talker_config": talker,
            "speaker_encoder_config": encoder,
        },
    )
    # The teacher says a sentence in one way only, so the most likely code is the right one: sample greedily.
    sampling = {"temperature": 0.7, "top_p": 1.0, "top_k": 20}
    _write_json(
        folder / "generation_config.json",
        {
            "do_sample": False,
            "repetition_penalty": 1.0,
            **sampling,
            "subtalker_dosample": False,
            **{f"subtalker_{name}": value for name, value in sampling.items()},
            "max_new_tokens": MAX_NEW_TOKENS,
            "text_characters": "ascii" if tuple(languages) == ("english",) else "western",
            "text_in_words": True,
            "max_segment_chars": MAX_SEGMENT_CHARS,
            "silent_first_frames": SILENT_FIRST_FRAMES,
            "ends_quieter_db": ENDS_QUIETER_DB,
            "whole_after_cut": True,
        },
    )
    _write_tokenizer(folder, tokenizer)


def write_talker(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write model.safetensors. `tensors`: by their names in the checkpoint."""
    weights = {name: tensor.detach().to("cpu", torch.bfloat16).contiguous() for name, tensor in tensors.items()}
    unfinished = folder / "model.tmp"
    save_file(weights, unfinished, metadata={"format": "pt"})
    os.replace(unfinished, folder / "model.safetensors")


def _speaker_encoder(sizes: SpeakerEncoderSizes, hidden_size: int) -> dict[str, Any]:
    return {
        "enc_dim": hidden_size,
        "sample_rate": SAMPLE_RATE_HZ,
        "mel_dim": NUM_MELS,
        # The outputs of three blocks are pooled side by side: the last size must be three times the others.
        "enc_channels": [sizes.channels] * 4 + [3 * sizes.channels],
        "enc_kernel_sizes": [5, 3, 3, 3, 1],
        "enc_dilations": [1, 2, 3, 4, 1],
        "enc_attention_channels": sizes.attention_channels,
        "enc_res2net_scale": 4,
        "enc_se_channels": sizes.squeezed_channels,
    }


def _stack(sizes: StackSizes) -> dict[str, Any]:
    return {
        "hidden_size": sizes.hidden_size,
        "intermediate_size": sizes.intermediate_size,
        "num_hidden_layers": sizes.num_layers,
        "num_attention_heads": sizes.num_heads,
        "num_key_value_heads": sizes.num_kv_heads,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "attention_bias": False,
        "attention_dropout": 0,
    }


def _write_tokenizer(folder: Path, tokenizer: Mapping[str, Any]) -> None:
    _write_json(folder / TOKENIZER_FILE, tokenizer)
    _write_json(folder / "vocab.json", tokenizer["model"]["vocab"])
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in tokenizer["model"]["merges"]]
    (folder / "merges.txt").write_text("\n".join(("#version: 0.2", *merges, "")), encoding="utf-8")
    token = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    _write_json(
        folder / "tokenizer_config.json",
        {
            "add_bos_token": False,
            "add_prefix_space": False,
            "added_tokens_decoder": {
                str(t["id"]): {"content": t["content"], **token} for t in tokenizer["added_tokens"]
            },
            "additional_special_tokens": list(SPECIAL_TOKENS[1:]),
            "bos_token": None,
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "unk_token": None,
            "errors": "replace",
            "model_max_length": 32768,
            "split_special_tokens": False,
            "tokenizer_class": "Qwen2Tokenizer",
            "clean_up_tokenization_spaces": False,
        },
    )


def _write_json(path: Path, values: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
