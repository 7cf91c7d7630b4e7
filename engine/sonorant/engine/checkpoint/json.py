"""The JSON objects of a checkpoint folder, with the defaults of the official configuration classes filled in.

`save_pretrained` leaves out keys that equal a default, so an absent key means the default. Source: QwenLM/Qwen3-TTS
`qwen_tts/core/models/configuration_qwen3_tts.py`,
`qwen_tts/core/tokenizer_12hz/configuration_qwen3_tts_tokenizer_v2.py`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from sonorant.engine.checkpoint.files import read_text
from sonorant.engine.errors import CheckpointError

Json: TypeAlias = Mapping[str, Any]
MAX_BYTES = 16 * 1024 * 1024  # of a file
# Far beyond any checkpoint, so that a wrong number is told at once: what has 10^9 layers is never built.
MAX_SIZE = 2**24
MOST: Mapping[str, int] = {
    "num_hidden_layers": 1024,
    "num_code_groups": 256,
    "num_quantizers": 256,
    "num_residual_layers": 16,
    "num_semantic_quantizers": 256,
    "silent_first_frames": 8,
}
MAX_SIZES = 16  # in a list
MAX_NUMBER = 1e30
CODEC_TYPE = "qwen3_tts_tokenizer_12hz"

MODEL_DEFAULTS: Json = {
    "tokenizer_type": CODEC_TYPE,
    "tts_model_size": "",
    "im_start_token_id": 151644,
    "im_end_token_id": 151645,
    "assistant_token_id": 77091,
    "tts_pad_token_id": 151671,
    "tts_bos_token_id": 151672,
    "tts_eos_token_id": 151673,
    "talker_config": {},
    "speaker_encoder_config": {},
}
STACK_DEFAULTS: Json = {
    "hidden_act": "silu",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_attention_heads": 16,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000,
    "rope_scaling": {},
    "attention_bias": False,
    "use_sliding_window": False,
}
TALKER_DEFAULTS: Json = {
    **STACK_DEFAULTS,
    "intermediate_size": 2048,
    "num_hidden_layers": 20,
    "num_key_value_heads": 2,
    "vocab_size": 3072,
    "num_code_groups": 32,
    "text_hidden_size": 2048,
    "codec_pad_id": 4196,
    "codec_bos_id": 4197,
    "codec_eos_token_id": 4198,
    "codec_think_id": 4202,
    "codec_nothink_id": 4203,
    "codec_think_bos_id": 4204,
    "codec_think_eos_id": 4205,
    "codec_language_id": {},
    "spk_id": {},
    "spk_is_dialect": {},
    "code_predictor_config": {},
}
CODE_PREDICTOR_DEFAULTS: Json = {
    **STACK_DEFAULTS,
    "num_hidden_layers": 5,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 2048,
    "num_code_groups": 32,
}
SPEAKER_ENCODER_DEFAULTS: Json = {
    "enc_dim": 1024,
    "sample_rate": 24000,
    "mel_dim": 128,
    "enc_channels": (512, 512, 512, 512, 1536),
    "enc_kernel_sizes": (5, 3, 3, 3, 1),
    "enc_dilations": (1, 2, 3, 4, 1),
    "enc_attention_channels": 128,
    "enc_res2net_scale": 8,
    "enc_se_channels": 128,
}
CODEC_DEFAULTS: Json = {
    "encoder_config": {},
    "decoder_config": {},
    "encoder_valid_num_quantizers": 16,
    "input_sample_rate": 24000,
    "output_sample_rate": 24000,
    "decode_upsample_rate": 1920,
    "encode_downsample_rate": 1920,
}
CODEC_DECODER_DEFAULTS: Json = {
    **STACK_DEFAULTS,
    "num_hidden_layers": 8,
    "num_key_value_heads": 16,
    "rms_norm_eps": 1e-5,
    "sliding_window": 72,
    "latent_dim": 1024,
    "codebook_size": 2048,
    "decoder_dim": 1536,
    "num_quantizers": 16,
    "upsample_rates": (8, 5, 4, 3),
    "upsampling_ratios": (2, 2),
}
# Defaults of transformers' MimiConfig.
CODEC_ENCODER_DEFAULTS: Json = {
    "sampling_rate": 24_000,
    "audio_channels": 1,
    "hidden_size": 512,
    "num_filters": 64,
    "num_residual_layers": 1,
    "upsampling_ratios": (8, 6, 5, 4),
    "kernel_size": 7,
    "last_kernel_size": 3,
    "residual_kernel_size": 3,
    "dilation_growth_rate": 2,
    "use_causal_conv": True,
    "pad_mode": "constant",
    "compress": 2,
    "codebook_size": 2048,
    "codebook_dim": 256,
    "num_quantizers": 32,
    "use_conv_shortcut": False,
    "vector_quantization_hidden_dimension": 256,
    "num_semantic_quantizers": 1,
    "hidden_act": "gelu",
    "norm_eps": 1e-5,
    "rope_theta": 10000,
    "num_hidden_layers": 8,
    "intermediate_size": 2048,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "attention_bias": False,
}
# Defaults of generation_config.json, from Qwen3TTSModel._merge_generate_kwargs.
GENERATION_DEFAULTS: Json = {
    "do_sample": True,
    "temperature": 0.9,
    "top_k": 50,
    "top_p": 1.0,
    "repetition_penalty": 1.05,
    "subtalker_dosample": True,
    "subtalker_temperature": 0.9,
    "subtalker_top_k": 50,
    "subtalker_top_p": 1.0,
    "max_new_tokens": 2048,
    # Our own keys. They are here, as config.json is a part of the fingerprint by which stored voices know a checkpoint.
    "text_characters": "unicode",
    "max_segment_chars": 1000,
    "silent_first_frames": 0,
    "ends_quieter_db": 0.0,
}


@dataclass(frozen=True, slots=True)
class Section:
    """One JSON object with defaults filled in. It knows its file and key, so that every error can say where it is."""

    path: str
    values: Json

    @classmethod
    def read(cls, file: Path, defaults: Json) -> "Section":
        try:
            values = json.loads(read_text(file, MAX_BYTES))
        except FileNotFoundError:
            raise CheckpointError(f"{file} is missing; a checkpoint folder in the published layout has it") from None
        except (OSError, ValueError, RecursionError) as error:
            raise CheckpointError(f"{file} cannot be read: {error}") from error
        if not isinstance(values, dict):
            raise CheckpointError(f"{file} does not hold a JSON object")
        return cls(str(file), _filled(values, defaults))

    def section(self, key: str, defaults: Json) -> "Section":
        return Section(f"{self.path}: {key}", _filled(self.table(key), defaults))

    def has(self, key: str) -> bool:
        return self.values.get(key) is not None

    def table(self, key: str) -> Json:
        value = self._required(key)
        if not isinstance(value, dict):
            raise CheckpointError(f"{self.path}: {key} must be an object, not {value!r}")
        return value

    def id(self, key: str, num_ids: str, of: "Section") -> int:
        """Return an id: a row of the table whose size is the setting `num_ids` of `of`, which may be this object.

        Raises CheckpointError if it is beyond the table: it would fail, or speak nonsense, only when somebody uses it.
        """
        value, limit = self.integer(key), of.size(num_ids)
        if not 0 <= value < limit:
            raise CheckpointError(
                f"{self.path}: {key} is {value}; it must be 0 to {limit - 1}, as {num_ids} is {limit}"
            )
        return value

    def ids(self, key: str, num_ids: str) -> Mapping[str, int]:
        """Return names in lower case with their ids in the table whose size is the setting `num_ids`."""
        section = self.section(key, {})
        return {name.lower(): section.id(name, num_ids, of=self) for name in section.values}

    def text(self, key: str) -> str:
        return str(self._required(key))

    def flag(self, key: str) -> bool:
        return bool(self._required(key))

    def integer(self, key: str) -> int:
        value = self._required(key)
        if not isinstance(value, int) or isinstance(value, bool):
            raise CheckpointError(f"{self.path}: {key} must be an integer, not {value!r}")
        return value

    def size(self, key: str, least: int = 1) -> int:
        value, most = self.integer(key), MOST.get(key, MAX_SIZE)
        if not least <= value <= most:
            raise CheckpointError(f"{self.path}: {key} must be {least} to {most}, not {value}")
        return value

    def number(self, key: str) -> float:
        value = self._required(key)
        if not isinstance(value, int | float) or isinstance(value, bool) or abs(value) > MAX_NUMBER:
            raise CheckpointError(f"{self.path}: {key} must be a number, not {value!r}")
        return float(value)

    def sizes(self, key: str) -> tuple[int, ...]:
        value = self._required(key)
        if (
            not isinstance(value, list | tuple)
            or len(value) > MAX_SIZES
            or not all(isinstance(v, int) and 1 <= v <= MAX_SIZE for v in value)
        ):
            raise CheckpointError(
                f"{self.path}: {key} must be a list of at most {MAX_SIZES} integers, 1 to {MAX_SIZE}, not "
                f"{repr(value)[:200]}"
            )
        return tuple(value)

    def _required(self, key: str) -> Any:
        value = self.values.get(key)
        if value is None:
            raise CheckpointError(f"{self.path}: {key} is missing")
        return value


def _filled(values: Json, defaults: Json) -> Json:
    return {**defaults, **{key: value for key, value in values.items() if value is not None}}
