"""A typed view of a checkpoint folder's JSON files, and the only source of the model's sizes and ids.

Layout (as published): `config.json`, `generation_config.json`, `vocab.json`, `merges.txt`, `tokenizer_config.json`,
`model.safetensors`, `speech_tokenizer/{config.json, model.safetensors}`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sonorant.engine.checkpoint.json import (
    CODE_PREDICTOR_DEFAULTS,
    CODEC_DECODER_DEFAULTS,
    CODEC_DEFAULTS,
    CODEC_TYPE,
    GENERATION_DEFAULTS,
    MODEL_DEFAULTS,
    SPEAKER_ENCODER_DEFAULTS,
    TALKER_DEFAULTS,
    Json,
    Section,
)
from sonorant.engine.checkpoint.sampling_ranges import out_of_range
from sonorant.engine.errors import CheckpointError
from sonorant.engine.types import SamplingParams

Characters = Literal["ascii", "unicode"]
CHARACTERS: tuple[Characters, ...] = ("ascii", "unicode")
TaskName = Literal["custom_voice", "voice_design", "base"]
TASKS: tuple[TaskName, ...] = ("custom_voice", "voice_design", "base")
MIN_NEW_TOKENS = 2  # fixed in Qwen3TTSForConditionalGeneration.generate


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
class TalkerModelConfig:
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
        """Ids the talker never samples, except for the end token: the last 1024, as in the official package."""
        return range(max(0, self.vocab_size - 1024), self.vocab_size)


@dataclass(frozen=True, slots=True)
class CodePredictorConfig:
    stack: TransformerConfig
    vocab_size: int  # codes per codebook
    num_codebooks: int  # at least the talker's; there are tables and heads for one fewer


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
    decoder_dim: int
    num_quantizers: int
    upsample_rates: tuple[int, ...]
    upsampling_ratios: tuple[int, ...]

    @property
    def vector_dim(self) -> int:
        """Size of a codebook entry: the official package uses half of codebook_dim, whatever else the file says."""
        return self.codebook_dim // 2

    @property
    def frame_samples(self) -> int:
        return math.prod(self.upsample_rates) * math.prod(self.upsampling_ratios)


@dataclass(frozen=True, slots=True)
class CodecConfig:
    decoder: CodecDecoderConfig
    encoder: Json  # as in the file; sonorant.engine.model.codec.codec_encoder_config interprets it
    encoder_valid_num_quantizers: int
    input_sample_rate: int
    output_sample_rate: int
    frame_samples: int
    encode_frame_samples: int


@dataclass(frozen=True, slots=True)
class TextIds:
    """The text ids that prompts need."""

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
    size: str  # tts_model_size of config.json: 0b6, 1b7, tiny, ...
    dtype: str  # of the main model on disk, by config.json; bfloat16 if it names none
    text_ids: TextIds
    talker: TalkerModelConfig
    code_predictor: CodePredictorConfig
    codec: CodecConfig
    speaker_encoder: SpeakerEncoderConfig | None  # None unless `task` is base
    default_sampling: SamplingParams  # generation_config.json; seed 0
    max_segment_chars: int  # generation_config.json: how much text it speaks well in one go
    silent_first_frames: int  # generation_config.json: in how many frames at its beginning it may be silent
    ends_quieter_db: float  # generation_config.json: the end of a text, than the end of a sentence within it
    characters: Characters  # generation_config.json: those it was trained on; all others are folded to them

    @property
    def frame_rate_hz(self) -> float:
        return self.codec.output_sample_rate / self.codec.frame_samples

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
    config = Section.read(folder / "config.json", MODEL_DEFAULTS)
    task = config.text("tts_model_type")
    if task not in TASKS:
        raise CheckpointError(f"{config.path}: tts_model_type is {task!r}; supported are {', '.join(TASKS)}")
    if config.text("tokenizer_type") != CODEC_TYPE:
        raise CheckpointError(
            f"{config.path}: tokenizer_type is {config.text('tokenizer_type')!r}; only {CODEC_TYPE} is supported"
        )
    talker = config.section("talker_config", TALKER_DEFAULTS)
    generation = Section.read(folder / "generation_config.json", GENERATION_DEFAULTS)
    checkpoint = Checkpoint(
        folder=folder,
        name=folder.resolve().name,
        task=task,
        size=config.text("tts_model_size"),
        dtype=str(config.values.get("dtype") or config.values.get("torch_dtype") or "bfloat16"),
        text_ids=_text_ids(config, talker),
        talker=_talker(talker),
        code_predictor=_code_predictor(talker.section("code_predictor_config", CODE_PREDICTOR_DEFAULTS)),
        codec=_codec(Section.read(folder / "speech_tokenizer" / "config.json", CODEC_DEFAULTS)),
        speaker_encoder=_speaker_encoder(config.section("speaker_encoder_config", SPEAKER_ENCODER_DEFAULTS))
        if task == "base"
        else None,
        default_sampling=_default_sampling(generation),
        max_segment_chars=generation.size("max_segment_chars"),
        silent_first_frames=generation.size("silent_first_frames", least=0),
        ends_quieter_db=generation.number("ends_quieter_db"),
        characters=_characters(generation),
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


def _text_ids(c: Section, talker: Section) -> TextIds:
    def text_id(key: str) -> int:
        return c.id(key, "text_vocab_size", of=talker)

    return TextIds(
        im_start=text_id("im_start_token_id"),
        im_end=text_id("im_end_token_id"),
        assistant=text_id("assistant_token_id"),
        tts_pad=text_id("tts_pad_token_id"),
        tts_bos=text_id("tts_bos_token_id"),
        tts_eos=text_id("tts_eos_token_id"),
    )


def _talker(c: Section) -> TalkerModelConfig:
    def codec_id(key: str) -> int:
        return c.id(key, "vocab_size", of=c)

    language_ids = c.ids("codec_language_id", "vocab_size")
    return TalkerModelConfig(
        stack=_stack(c),
        vocab_size=c.size("vocab_size"),
        text_vocab_size=c.size("text_vocab_size"),
        text_hidden_size=c.size("text_hidden_size"),
        num_codebooks=c.size("num_code_groups"),
        codec_pad_id=codec_id("codec_pad_id"),
        codec_bos_id=codec_id("codec_bos_id"),
        codec_eos_id=codec_id("codec_eos_token_id"),
        codec_think_id=codec_id("codec_think_id"),
        codec_nothink_id=codec_id("codec_nothink_id"),
        codec_think_bos_id=codec_id("codec_think_bos_id"),
        codec_think_eos_id=codec_id("codec_think_eos_id"),
        language_ids=language_ids,
        speaker_ids=c.ids("spk_id", "vocab_size"),
        speaker_dialects=_speaker_dialects(c, language_ids),
    )


def _speaker_dialects(c: Section, language_ids: Mapping[str, int]) -> dict[str, str]:
    dialects = {name.lower(): str(dialect).lower() for name, dialect in c.table("spk_is_dialect").items() if dialect}
    for speaker, dialect in dialects.items():
        if dialect not in language_ids:
            raise CheckpointError(
                f"{c.path}: spk_is_dialect: {speaker} speaks {dialect!r}, which codec_language_id does not have"
            )
    return dialects


def _code_predictor(c: Section) -> CodePredictorConfig:
    return CodePredictorConfig(
        stack=_stack(c), vocab_size=c.size("vocab_size"), num_codebooks=c.size("num_code_groups")
    )


def _codec(c: Section) -> CodecConfig:
    d = c.section("decoder_config", CODEC_DECODER_DEFAULTS)
    decoder = CodecDecoderConfig(
        stack=_stack(d),
        sliding_window=d.size("sliding_window"),
        latent_dim=d.size("latent_dim"),
        codebook_dim=d.size("codebook_dim"),
        codebook_size=d.size("codebook_size"),
        decoder_dim=d.size("decoder_dim"),
        num_quantizers=d.size("num_quantizers"),
        upsample_rates=d.sizes("upsample_rates"),
        upsampling_ratios=d.sizes("upsampling_ratios"),
    )
    # The official package cuts each frame's audio to decode_upsample_rate samples; a larger number changes nothing.
    if c.size("decode_upsample_rate") < decoder.frame_samples:
        raise CheckpointError(
            f"{c.path}: decode_upsample_rate is {c.integer('decode_upsample_rate')}; it must be at least the "
            f"{decoder.frame_samples} samples that the decoder's rates make of a frame"
        )
    return CodecConfig(
        decoder=decoder,
        encoder=c.table("encoder_config"),
        encoder_valid_num_quantizers=c.size("encoder_valid_num_quantizers"),
        input_sample_rate=c.size("input_sample_rate"),
        output_sample_rate=c.size("output_sample_rate"),
        frame_samples=decoder.frame_samples,
        encode_frame_samples=c.size("encode_downsample_rate"),
    )


def _stack(c: Section) -> TransformerConfig:
    if c.text("hidden_act") != "silu":
        raise CheckpointError(f"{c.path}: hidden_act is {c.text('hidden_act')!r}; only silu is supported")
    scaling = c.table("rope_scaling")
    rope_type = scaling.get("rope_type", scaling.get("type", "default"))
    if rope_type != "default":
        raise CheckpointError(f"{c.path}: rope_scaling has rope_type {rope_type!r}; only default is supported")
    if c.flag("use_sliding_window"):
        raise CheckpointError(f"{c.path}: use_sliding_window is on; only full attention is supported")
    heads, kv_heads = c.size("num_attention_heads"), c.size("num_key_value_heads")
    if heads % kv_heads:
        raise CheckpointError(f"{c.path}: {heads} attention heads cannot share {kv_heads} key-value heads evenly")
    hidden_size = c.size("hidden_size")
    return TransformerConfig(
        hidden_size=hidden_size,
        intermediate_size=c.size("intermediate_size"),
        num_layers=c.size("num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=c.size("head_dim") if c.has("head_dim") else hidden_size // heads,
        rms_norm_eps=c.number("rms_norm_eps"),
        rope_theta=c.number("rope_theta"),
        attention_bias=c.flag("attention_bias"),
    )


def _speaker_encoder(c: Section) -> SpeakerEncoderConfig:
    return SpeakerEncoderConfig(
        enc_dim=c.size("enc_dim"),
        sample_rate=c.size("sample_rate"),
        mel_dim=c.size("mel_dim"),
        channels=c.sizes("enc_channels"),
        kernel_sizes=c.sizes("enc_kernel_sizes"),
        dilations=c.sizes("enc_dilations"),
        attention_channels=c.size("enc_attention_channels"),
        res2net_scale=c.size("enc_res2net_scale"),
        se_channels=c.size("enc_se_channels"),
    )


def _characters(c: Section) -> Characters:
    for characters in CHARACTERS:
        if characters == c.text("text_characters"):
            return characters
    wrong, right = c.text("text_characters"), ", ".join(CHARACTERS)
    raise CheckpointError(f"{c.path}: text_characters is {wrong!r}; supported are {right}")


def _default_sampling(c: Section) -> SamplingParams:
    sampling = SamplingParams(
        do_sample=c.flag("do_sample"),
        temperature=c.number("temperature"),
        top_k=c.integer("top_k"),
        top_p=c.number("top_p"),
        repetition_penalty=c.number("repetition_penalty"),
        subtalker_do_sample=c.flag("subtalker_dosample"),
        subtalker_temperature=c.number("subtalker_temperature"),
        subtalker_top_k=c.integer("subtalker_top_k"),
        subtalker_top_p=c.number("subtalker_top_p"),
        seed=0,
        min_frames=MIN_NEW_TOKENS,
        # With max_new_tokens M the official package returns M - 1 frames: it drops the last first code, which does not
        # get its other codebooks.
        max_frames=max(1, c.size("max_new_tokens") - 1),
    )
    if wrong := out_of_range(sampling):  # or the first utterance that relies on the defaults would fail
        raise CheckpointError(f"{c.path}: {wrong.message}")
    return sampling
