"""A typed view of a checkpoint folder's JSON files, and the only source of the model's sizes and ids.

Layout (as published): `config.json`, `generation_config.json`, `vocab.json`, `merges.txt`, `tokenizer_config.json`,
`model.safetensors`, `speech_tokenizer/{config.json, model.safetensors}`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from sonorant.engine.checkpoint.json import Json, Section, key
from sonorant.engine.checkpoint.sampling_ranges import out_of_range
from sonorant.engine.errors import CheckpointError
from sonorant.engine.types import Int16Array, SamplingParams

# ASCII; with the letters and marks of English, Spanish and Italian; all
Characters = Literal["ascii", "western", "unicode"]
TaskName = Literal["custom_voice", "voice_design", "base"]
CODEC_TYPE = "qwen3_tts_tokenizer_12hz"
MIN_NEW_TOKENS = 2  # fixed in Qwen3TTSForConditionalGeneration.generate


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerConfig:
    """Sizes of one decoder stack: talker, code predictor or the codec's transformer."""

    hidden_size: int = key(1024)
    intermediate_size: int = key(3072)
    num_layers: int = key(name="num_hidden_layers")
    num_heads: int = key(16, "num_attention_heads")
    num_kv_heads: int = key(name="num_key_value_heads")
    head_dim: int
    rms_norm_eps: float = key(1e-6)
    rope_theta: float = key(10000)
    attention_bias: bool = key(False)

    @property
    def kv_values(self) -> int:
        """How many numbers the keys and values of one position are."""
        return self.num_layers * 2 * self.num_kv_heads * self.head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class TalkerModelConfig:
    stack: TransformerConfig
    vocab_size: int = key(3072)  # rows of the codec embedding table: codes and control ids
    text_vocab_size: int = key()
    text_hidden_size: int = key(2048)
    num_codebooks: int = key(32, "num_code_groups")
    codec_pad_id: int = key(4196, table="vocab_size")
    codec_bos_id: int = key(4197, table="vocab_size")
    codec_eos_id: int = key(4198, "codec_eos_token_id", table="vocab_size")
    codec_think_id: int = key(4202, table="vocab_size")
    codec_nothink_id: int = key(4203, table="vocab_size")
    codec_think_bos_id: int = key(4204, table="vocab_size")
    codec_think_eos_id: int = key(4205, table="vocab_size")
    # Lower-case name -> codec id, dialects included:
    language_ids: Mapping[str, int] = key(name="codec_language_id", table="vocab_size")
    speaker_ids: Mapping[str, int] = key(name="spk_id", table="vocab_size")  # lower-case name -> codec id
    speaker_dialects: Mapping[str, str]  # lower-case name -> dialect, only for speakers that have one

    @property
    def suppressed_ids(self) -> range:
        """Ids the talker never samples, except for the end token: the last 1024, as in the official package."""
        return range(max(0, self.vocab_size - 1024), self.vocab_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodePredictorConfig:
    stack: TransformerConfig
    vocab_size: int = key(2048)  # codes per codebook
    num_codebooks: int = key(32, "num_code_groups")  # at least the talker's; there are tables and heads for one fewer


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeakerEncoderConfig:
    """Reference: qwen_tts/core/models/configuration_qwen3_tts.py, Qwen3TTSSpeakerEncoderConfig."""

    enc_dim: int = key(1024)
    sample_rate: int = key(24000)
    mel_dim: int = key(128)
    channels: tuple[int, ...] = key((512, 512, 512, 512, 1536), "enc_channels")
    kernel_sizes: tuple[int, ...] = key((5, 3, 3, 3, 1), "enc_kernel_sizes")
    dilations: tuple[int, ...] = key((1, 2, 3, 4, 1), "enc_dilations")
    attention_channels: int = key(128, "enc_attention_channels")
    res2net_scale: int = key(8, "enc_res2net_scale")
    se_channels: int = key(128, "enc_se_channels")


@dataclass(frozen=True, slots=True, kw_only=True)
class CodecDecoderConfig:
    stack: TransformerConfig
    sliding_window: int = key(72)  # query q sees keys q - window + 1 .. q
    latent_dim: int = key(1024)
    codebook_dim: int = key()
    codebook_size: int = key(2048)
    decoder_dim: int = key(1536)
    num_quantizers: int = key(16)
    upsample_rates: tuple[int, ...] = key((8, 5, 4, 3))
    upsampling_ratios: tuple[int, ...] = key((2, 2))

    @property
    def vector_dim(self) -> int:
        """Size of a codebook entry: the official package uses half of codebook_dim, whatever else the file says."""
        return self.codebook_dim // 2

    @property
    def frame_samples(self) -> int:
        return math.prod(self.upsample_rates) * math.prod(self.upsampling_ratios)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodecConfig:
    decoder: CodecDecoderConfig
    encoder: Json  # as in the file; sonorant.engine.model.codec.codec_encoder_config interprets it
    frame_samples: int
    encoder_valid_num_quantizers: int = key(16)
    input_sample_rate: int = key(24000)
    output_sample_rate: int = key(24000)
    encode_frame_samples: int = key(1920, "encode_downsample_rate")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextIds:
    """The text ids that prompts need."""

    im_start: int = key(151644, "im_start_token_id", table="text_vocab_size")
    im_end: int = key(151645, "im_end_token_id", table="text_vocab_size")
    assistant: int = key(77091, "assistant_token_id", table="text_vocab_size")
    tts_pad: int = key(151671, "tts_pad_token_id", table="text_vocab_size")
    tts_bos: int = key(151672, "tts_bos_token_id", table="text_vocab_size")
    tts_eos: int = key(151673, "tts_eos_token_id", table="text_vocab_size")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Everything the JSON files of one folder say."""

    folder: Path
    name: str
    task: TaskName
    size: str  # tts_model_size of config.json: 0b6, 1b7, tiny, ...
    dtype: str  # of the main model on disk, by config.json; bfloat16 if it names none
    text_ids: TextIds
    talker: TalkerModelConfig
    code_predictor: CodePredictorConfig
    codec: CodecConfig
    speaker_encoder: SpeakerEncoderConfig | None  # None unless `task` is base
    default_sampling: SamplingParams  # generation_config.json; seed 0
    # Our own keys of generation_config.json, as config.json is a part of the fingerprint by which stored voices know a
    # checkpoint:
    characters: Characters  # those it was trained on; all others are folded to them
    max_segment_chars: int = key(1000)  # how much text it speaks well in one go
    in_words: bool = key(False, "text_in_words")  # it is given numbers, and English letters said one by one, as words
    silent_first_frames: int = key(0, least=0)  # in how many frames at its beginning it may be silent
    ends_quieter_db: float = key(0.0)  # the end of a text, than the end of a sentence within it
    whole_after_cut: bool = key(False)  # text behind a cut by length is spoken better with all of it in the prompt

    @property
    def frame_rate_hz(self) -> float:
        return self.codec.output_sample_rate / self.codec.frame_samples

    def fault_of_codes(self, codes: Int16Array, *, may_be_none: bool = False) -> str:
        """Return why these cannot be frames of its codec, or an empty string."""
        num_codebooks, num_codes = self.talker.num_codebooks, self.code_predictor.vocab_size
        if codes.dtype != np.int16 or codes.ndim != 2 or codes.shape[1] != num_codebooks:
            return f"are {codes.dtype} of shape {codes.shape}, {self.name} needs int16 (frames, {num_codebooks})"
        if not len(codes):
            return "" if may_be_none else "have no frames"
        if codes.min() < 0 or codes.max() >= num_codes:
            return f"run from {codes.min()} to {codes.max()}, a code is 0 to {num_codes - 1}"
        return ""

    @property
    def languages(self) -> tuple[str, ...]:
        """Languages that a caller may name: all but the dialects, which speakers imply."""
        return tuple(sorted(name for name in self.talker.language_ids if "dialect" not in name))

    @property
    def takes_instruct(self) -> bool:
        """Whether it follows instructions. The 0.6B checkpoints were not trained on any, and the official package drops
        them by the first test here; nor were our built-in ones, which are smaller."""
        if self.size in "0b6" or self.size == "tiny":
            return False
        return self.task in ("voice_design", "custom_voice")


def load_checkpoint(folder: Path) -> Checkpoint:
    """Read the JSON files. Raises CheckpointError that names the file and key that is missing or unusable."""
    config = Section.read(folder / "config.json")
    task: TaskName = config.choice("tts_model_type", get_args(TaskName))
    if (codec_type := config.text("tokenizer_type", CODEC_TYPE)) != CODEC_TYPE:
        raise CheckpointError(f"{config.path}: tokenizer_type is {codec_type!r}; only {CODEC_TYPE} is supported")
    generation = Section.read(folder / "generation_config.json")
    of_talker = config.section("talker_config")
    talker = _talker(of_talker)
    of_predictor = of_talker.section("code_predictor_config")
    stack = _stack(of_predictor, num_layers=5, num_kv_heads=8, head_dim=128)
    checkpoint = generation.make(
        Checkpoint,
        folder=folder,
        name=folder.resolve().name,
        task=task,
        size=config.text("tts_model_size", ""),
        dtype=str(config.values.get("dtype") or config.values.get("torch_dtype") or "bfloat16"),
        text_ids=config.make(TextIds, {"text_vocab_size": talker.text_vocab_size}),
        talker=talker,
        code_predictor=of_predictor.make(CodePredictorConfig, stack=stack),
        codec=_codec(Section.read(folder / "speech_tokenizer" / "config.json")),
        speaker_encoder=config.section("speaker_encoder_config").make(SpeakerEncoderConfig) if task == "base" else None,
        default_sampling=_default_sampling(generation),
        characters=generation.choice("text_characters", get_args(Characters), "unicode"),
    )
    _check_consistent(checkpoint)
    return checkpoint


def _check_consistent(c: Checkpoint) -> None:
    books = c.talker.num_codebooks
    if not books == c.codec.decoder.num_quantizers <= c.code_predictor.num_codebooks:
        raise CheckpointError(
            f"{c.folder}: the numbers of codebooks differ: the talker has {books} (num_code_groups), the code "
            f"predictor {c.code_predictor.num_codebooks}, the codec's decoder {c.codec.decoder.num_quantizers} "
            "(num_quantizers)"
        )
    codes = max(c.code_predictor.vocab_size, c.talker.suppressed_ids.start)
    if codes > c.codec.decoder.codebook_size:
        raise CheckpointError(
            f"{c.folder}: the model samples from {codes} codes (vocab_size of the code predictor, and of the talker "
            f"less 1024), but the codec has only {c.codec.decoder.codebook_size} (codebook_size)"
        )
    if c.in_words and c.characters == "unicode":
        raise CheckpointError(
            f"{c.folder}: text_in_words is true, but text_characters is unicode; only text of known characters, ascii "
            "or western, is put into words"
        )
    if c.speaker_encoder is None:
        return
    hidden_size = c.talker.stack.hidden_size
    if c.speaker_encoder.enc_dim != hidden_size:
        raise CheckpointError(
            f"{c.folder / 'config.json'}: speaker_encoder_config: enc_dim is {c.speaker_encoder.enc_dim}; "
            f"it must be the talker's hidden_size {hidden_size}"
        )
    if c.codec.encoder_valid_num_quantizers != books:
        raise CheckpointError(
            f"{c.folder / 'speech_tokenizer' / 'config.json'}: encoder_valid_num_quantizers is "
            f"{c.codec.encoder_valid_num_quantizers}; it must be the talker's num_code_groups {books}"
        )


def _talker(c: Section) -> TalkerModelConfig:
    stack = _stack(c, num_layers=20, num_kv_heads=2, intermediate_size=2048)
    talker = c.make(TalkerModelConfig, stack=stack, speaker_dialects={})
    return replace(talker, speaker_dialects=_speaker_dialects(c, talker.language_ids))


def _speaker_dialects(c: Section, language_ids: Mapping[str, int]) -> dict[str, str]:
    dialects = {name.lower(): str(dialect).lower() for name, dialect in c.table("spk_is_dialect").items() if dialect}
    for speaker, dialect in dialects.items():
        if dialect not in language_ids:
            raise CheckpointError(
                f"{c.path}: spk_is_dialect: {speaker} speaks {dialect!r}, which codec_language_id does not have"
            )
    return dialects


def _codec(c: Section) -> CodecConfig:
    d = c.section("decoder_config")
    decoder = d.make(CodecDecoderConfig, stack=_stack(d, num_layers=8, num_kv_heads=16, rms_norm_eps=1e-5))
    # The official package cuts each frame's audio to decode_upsample_rate samples; a larger number changes nothing.
    if (rate := c.size("decode_upsample_rate", 1920)) < decoder.frame_samples:
        raise CheckpointError(
            f"{c.path}: decode_upsample_rate is {rate}; it must be at least the {decoder.frame_samples} samples that "
            "the decoder's rates make of a frame"
        )
    encoder = c.table("encoder_config")
    return c.make(CodecConfig, decoder=decoder, encoder=encoder, frame_samples=decoder.frame_samples)


def _stack(c: Section, **defaults: Any) -> TransformerConfig:
    """`defaults`: in place of those that TransformerConfig declares."""
    if (act := c.text("hidden_act", "silu")) != "silu":
        raise CheckpointError(f"{c.path}: hidden_act is {act!r}; only silu is supported")
    scaling = c.table("rope_scaling")
    rope_type = scaling.get("rope_type", scaling.get("type", "default"))
    if rope_type != "default":
        raise CheckpointError(f"{c.path}: rope_scaling has rope_type {rope_type!r}; only default is supported")
    if c.flag("use_sliding_window", False):
        raise CheckpointError(f"{c.path}: use_sliding_window is on; only full attention is supported")
    return transformer_config(c, **defaults)


def transformer_config(c: Section, **defaults: Any) -> TransformerConfig:
    sizes = c.make(TransformerConfig, defaults=defaults, head_dim=0)
    heads, kv_heads = sizes.num_heads, sizes.num_kv_heads
    if heads % kv_heads:
        raise CheckpointError(f"{c.path}: {heads} attention heads cannot share {kv_heads} key-value heads evenly")
    return replace(sizes, head_dim=c.size("head_dim", defaults.get("head_dim", sizes.hidden_size // heads)))


def _default_sampling(c: Section) -> SamplingParams:
    """The defaults are those of Qwen3TTSModel._merge_generate_kwargs."""
    sampling = SamplingParams(
        do_sample=c.flag("do_sample", True),
        temperature=c.number("temperature", 0.9),
        top_k=c.integer("top_k", 50),
        top_p=c.number("top_p", 1.0),
        repetition_penalty=c.number("repetition_penalty", 1.05),
        subtalker_do_sample=c.flag("subtalker_dosample", True),
        subtalker_temperature=c.number("subtalker_temperature", 0.9),
        subtalker_top_k=c.integer("subtalker_top_k", 50),
        subtalker_top_p=c.number("subtalker_top_p", 1.0),
        seed=0,
        min_frames=MIN_NEW_TOKENS,
        # With max_new_tokens M the official package returns M - 1 frames: it drops the last first code, which does not
        # get its other codebooks.
        max_frames=max(1, c.size("max_new_tokens", 2048) - 1),
    )
    if wrong := out_of_range(sampling):  # or the first utterance that relies on the defaults would fail
        raise CheckpointError(f"{c.path}: {wrong.message}")
    return sampling
