"""Typed view of a checkpoint folder's JSON files, published or tiny. Nothing about the model is known from anywhere else.

Layout (as published): `config.json`, `generation_config.json`, `vocab.json`, `merges.txt`, `tokenizer_config.json`,
`model.safetensors`, `speech_tokenizer/{config.json, model.safetensors}`. Source: QwenLM/Qwen3-TTS
`qwen_tts/core/models/configuration_qwen3_tts.py`, whose class defaults differ from the published files and are not used.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from engine.errors import CheckpointError
from engine.types import SamplingParams

PRESETS_DIR = Path(__file__).parent / "presets"
BUILTIN_VOICE_DIR = Path(__file__).parent / "builtin_voice"

Json: TypeAlias = Mapping[str, Any]
TaskName = Literal["custom_voice", "voice_design", "base"]
TASKS: tuple[TaskName, ...] = ("custom_voice", "voice_design", "base")

# The published files never set these; they are the package's own fallbacks (qwen_tts/inference/qwen3_tts_model.py).
MIN_NEW_TOKENS = 2
FALLBACK_MAX_NEW_TOKENS = 2048


@dataclass(frozen=True, slots=True)
class TransformerConfig:
    """Sizes of one decoder stack: talker, code predictor or the codec's transformer."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    attention_bias: bool


@dataclass(frozen=True, slots=True)
class TalkerConfig:
    stack: TransformerConfig
    vocab_size: int  # rows of the codec embedding table: codes and control ids
    text_vocab_size: int
    text_hidden_size: int
    num_codebooks: int
    codec_pad_id: int
    codec_bos_id: int
    codec_eos_id: int
    codec_think_id: int
    codec_nothink_id: int
    codec_think_bos_id: int
    codec_think_eos_id: int
    language_ids: Mapping[str, int]  # lower-case name -> codec id, dialects included
    speaker_ids: Mapping[str, int]  # lower-case name -> codec id
    speaker_dialects: Mapping[str, str]  # lower-case name -> dialect, only for speakers that have one

    @property
    def suppressed_ids(self) -> range:
        """Ids the talker never samples, the end token aside: the last 1024 of the table, as the official package."""
        return range(self.vocab_size - 1024, self.vocab_size)


@dataclass(frozen=True, slots=True)
class CodePredictorConfig:
    stack: TransformerConfig
    vocab_size: int  # codes per codebook


@dataclass(frozen=True, slots=True)
class SpeakerEncoderConfig:
    """Reference: qwen_tts/core/models/configuration_qwen3_tts.py, Qwen3TTSSpeakerEncoderConfig."""

    enc_dim: int
    sample_rate: int
    mel_dim: int
    channels: tuple[int, ...]
    kernel_sizes: tuple[int, ...]
    dilations: tuple[int, ...]
    attention_channels: int
    res2net_scale: int
    se_channels: int


@dataclass(frozen=True, slots=True)
class CodecDecoderConfig:
    stack: TransformerConfig
    sliding_window: int  # query q sees keys q - window + 1 .. q
    latent_dim: int
    codebook_dim: int
    codebook_size: int
    vector_dim: int  # of one codebook entry
    decoder_dim: int
    num_quantizers: int
    num_semantic_quantizers: int
    upsample_rates: tuple[int, ...]
    upsampling_ratios: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CodecConfig:
    decoder: CodecDecoderConfig
    encoder: Json  # handed to transformers' MimiConfig as it is
    encoder_valid_num_quantizers: int
    input_sample_rate: int
    output_sample_rate: int
    frame_samples: int  # decode_upsample_rate
    encode_frame_samples: int  # encode_downsample_rate


@dataclass(frozen=True, slots=True)
class TextIds:
    """Ids of the text side that the prompt needs."""

    im_start: int
    im_end: int
    assistant: int
    tts_pad: int
    tts_bos: int
    tts_eos: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything the JSON files of one folder say."""

    folder: Path
    name: str
    task: TaskName
    size: str  # the tag of config.json: 0b6, 1b7, tiny, ...
    dtype: str  # of the main model on disk, as config.json has it; bfloat16 where it says nothing
    text_ids: TextIds
    talker: TalkerConfig
    code_predictor: CodePredictorConfig
    codec: CodecConfig
    speaker_encoder: SpeakerEncoderConfig | None  # None unless `task` is base
    default_sampling: SamplingParams  # generation_config.json; seed 0

    @property
    def frame_rate_hz(self) -> float:
        return self.codec.output_sample_rate / self.codec.frame_samples

    @property
    def languages(self) -> tuple[str, ...]:
        """Languages a caller may name: the table without the dialects, which speakers imply."""
        return tuple(sorted(name for name in self.talker.language_ids if not name.endswith("_dialect")))

    @property
    def takes_instruct(self) -> bool:
        """The 0.6B checkpoints were not trained on instructions; the package drops them by this very test."""
        return self.task != "base" and "0b6" not in self.size


def resolve_model(name_or_path: str) -> Path:
    """Folder of a preset name (see `engine/presets`) or of a path. Raises CheckpointError if neither exists."""
    preset = PRESETS_DIR / name_or_path.lower()
    if "/" not in name_or_path and preset.joinpath("config.json").is_file():
        return preset
    folder = Path(name_or_path).expanduser()
    if not folder.is_dir():
        names = ", ".join(sorted(p.parent.name for p in PRESETS_DIR.glob("*/config.json")))
        raise CheckpointError(f"no checkpoint folder at {folder}; give a folder or one of the presets: {names}")
    return folder


def load_checkpoint(folder: Path) -> Checkpoint:
    """Read the JSON files. Raises CheckpointError naming the file and key that is missing or unusable."""
    config = _Section.read(folder / "config.json")
    codec = _Section.read(folder / "speech_tokenizer" / "config.json")
    task = config.text("tts_model_type")
    if task not in TASKS:
        raise CheckpointError(f"{config.path}: tts_model_type is {task!r}; supported are {', '.join(TASKS)}")
    if config.text("tokenizer_type") != "qwen3_tts_tokenizer_12hz":
        raise CheckpointError(
            f"{config.path}: tokenizer_type is {config.text('tokenizer_type')!r}; only qwen3_tts_tokenizer_12hz is supported"
        )
    talker = config.section("talker_config")
    return Checkpoint(
        folder=folder,
        name=folder.resolve().name,
        task=cast(TaskName, task),
        size=config.text("tts_model_size"),
        dtype=str(config.get("dtype") or config.get("torch_dtype") or "bfloat16"),
        text_ids=TextIds(
            im_start=config.integer("im_start_token_id"),
            im_end=config.integer("im_end_token_id"),
            assistant=config.integer("assistant_token_id"),
            tts_pad=config.integer("tts_pad_token_id"),
            tts_bos=config.integer("tts_bos_token_id"),
            tts_eos=config.integer("tts_eos_token_id"),
        ),
        talker=_talker(talker),
        code_predictor=_code_predictor(talker.section("code_predictor_config")),
        codec=_codec(codec),
        speaker_encoder=_speaker_encoder(config.section("speaker_encoder_config")) if task == "base" else None,
        default_sampling=_default_sampling(folder / "generation_config.json"),
    )


def _talker(c: "_Section") -> TalkerConfig:
    dialects = {str(k).lower(): v for k, v in c.table("spk_is_dialect").items()}
    return TalkerConfig(
        stack=_stack(c),
        vocab_size=c.integer("vocab_size"),
        text_vocab_size=c.integer("text_vocab_size"),
        text_hidden_size=c.integer("text_hidden_size"),
        num_codebooks=c.integer("num_code_groups"),
        codec_pad_id=c.integer("codec_pad_id"),
        codec_bos_id=c.integer("codec_bos_id"),
        codec_eos_id=c.integer("codec_eos_token_id"),
        codec_think_id=c.integer("codec_think_id"),
        codec_nothink_id=c.integer("codec_nothink_id"),
        codec_think_bos_id=c.integer("codec_think_bos_id"),
        codec_think_eos_id=c.integer("codec_think_eos_id"),
        language_ids={str(k).lower(): int(v) for k, v in c.table("codec_language_id").items()},
        speaker_ids={str(k).lower(): int(v) for k, v in c.table("spk_id").items()},
        speaker_dialects={k: str(v) for k, v in dialects.items() if v},
    )


def _code_predictor(c: "_Section") -> CodePredictorConfig:
    return CodePredictorConfig(stack=_stack(c), vocab_size=c.integer("vocab_size"))


def _codec(c: "_Section") -> CodecConfig:
    d = c.section("decoder_config")
    return CodecConfig(
        decoder=CodecDecoderConfig(
            stack=_stack(d),
            sliding_window=d.integer("sliding_window"),
            latent_dim=d.integer("latent_dim"),
            codebook_dim=d.integer("codebook_dim"),
            codebook_size=d.integer("codebook_size"),
            # The package builds the codebooks with half of codebook_dim, whatever the file says beside it.
            vector_dim=d.integer("codebook_dim") // 2,
            decoder_dim=d.integer("decoder_dim"),
            num_quantizers=d.integer("num_quantizers"),
            num_semantic_quantizers=d.integer("num_semantic_quantizers"),
            upsample_rates=d.integers("upsample_rates"),
            upsampling_ratios=d.integers("upsampling_ratios"),
        ),
        encoder=c.table("encoder_config"),
        encoder_valid_num_quantizers=c.integer("encoder_valid_num_quantizers"),
        input_sample_rate=c.integer("input_sample_rate"),
        output_sample_rate=c.integer("output_sample_rate"),
        frame_samples=c.integer("decode_upsample_rate"),
        encode_frame_samples=c.integer("encode_downsample_rate"),
    )


def _stack(c: "_Section") -> TransformerConfig:
    if c.get("hidden_act", "silu") != "silu":
        raise CheckpointError(f"{c.path}: hidden_act is {c.get('hidden_act')!r}; only silu is supported")
    heads = c.integer("num_attention_heads")
    return TransformerConfig(
        hidden_size=c.integer("hidden_size"),
        intermediate_size=c.integer("intermediate_size"),
        num_layers=c.integer("num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=c.integer("num_key_value_heads"),
        head_dim=c.integer("head_dim", c.integer("hidden_size") // heads),
        rms_norm_eps=c.number("rms_norm_eps"),
        rope_theta=c.number("rope_theta"),
        attention_bias=bool(c.get("attention_bias", False)),
    )


def _speaker_encoder(c: "_Section") -> SpeakerEncoderConfig:
    return SpeakerEncoderConfig(
        enc_dim=c.integer("enc_dim"),
        sample_rate=c.integer("sample_rate", 24000),
        mel_dim=c.integer("mel_dim", 128),
        channels=c.integers("enc_channels", (512, 512, 512, 512, 1536)),
        kernel_sizes=c.integers("enc_kernel_sizes", (5, 3, 3, 3, 1)),
        dilations=c.integers("enc_dilations", (1, 2, 3, 4, 1)),
        attention_channels=c.integer("enc_attention_channels", 128),
        res2net_scale=c.integer("enc_res2net_scale", 8),
        se_channels=c.integer("enc_se_channels", 128),
    )


def _default_sampling(path: Path) -> SamplingParams:
    """The package's own fallbacks stand in for absent keys (Qwen3TTSModel._merge_generate_kwargs)."""
    c = _Section.read(path)
    return SamplingParams(
        do_sample=bool(c.get("do_sample", True)),
        temperature=c.number("temperature", 0.9),
        top_k=c.integer("top_k", 50),
        top_p=c.number("top_p", 1.0),
        repetition_penalty=c.number("repetition_penalty", 1.05),
        subtalker_do_sample=bool(c.get("subtalker_dosample", True)),
        subtalker_temperature=c.number("subtalker_temperature", 0.9),
        subtalker_top_k=c.integer("subtalker_top_k", 50),
        subtalker_top_p=c.number("subtalker_top_p", 1.0),
        seed=0,
        min_frames=MIN_NEW_TOKENS,
        # At max_new_tokens M the package returns M - 1 frames: the last first code never gets its other codebooks.
        max_frames=c.integer("max_new_tokens", FALLBACK_MAX_NEW_TOKENS) - 1,
    )


@dataclass(frozen=True, slots=True)
class _Section:
    """One JSON object with its place, so that every complaint can say where."""

    path: str
    values: Json

    @classmethod
    def read(cls, file: Path) -> "_Section":
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise CheckpointError(f"{file} is missing; a checkpoint folder in the published layout has it") from None
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{file} cannot be read: {error}") from error
        if not isinstance(values, dict):
            raise CheckpointError(f"{file} does not hold a JSON object")
        return cls(str(file), values)

    def get(self, key: str, default: object = None) -> Any:
        return self.values.get(key, default)

    def section(self, key: str) -> "_Section":
        return _Section(f"{self.path}: {key}", self.table(key))

    def table(self, key: str) -> Json:
        value = self._required(key, None)
        if not isinstance(value, dict):
            raise CheckpointError(f"{self.path}: {key} must be an object, not {value!r}")
        return value

    def text(self, key: str) -> str:
        return str(self._required(key, None))

    def integer(self, key: str, default: int | None = None) -> int:
        value = self._required(key, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise CheckpointError(f"{self.path}: {key} must be an integer, not {value!r}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._required(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise CheckpointError(f"{self.path}: {key} must be a number, not {value!r}")
        return float(value)

    def integers(self, key: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        value = self._required(key, default)
        if not isinstance(value, list | tuple) or not all(isinstance(v, int) for v in value):
            raise CheckpointError(f"{self.path}: {key} must be a list of integers, not {value!r}")
        return tuple(value)

    def _required(self, key: str, default: object) -> Any:
        value = self.values.get(key, default)
        if value is None:
            raise CheckpointError(f"{self.path}: {key} is missing")
        return value
