"""Checks requests that speak, and turns them into values, before any resource is taken.

No field is ignored: those that are not served are refused with their path.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sonorant.engine import (
    NOTHING_SPENT,
    EngineInfo,
    EnginePool,
    InvalidSynthesis,
    PromptLayout,
    SamplingParams,
    Spent,
    SynthesisParams,
    UnsupportedTask,
)
from sonorant.service.audio.formats import check_audio, decimal
from sonorant.service.audio.writer import AudioSpec
from sonorant.service.errors import InvalidField, NotServed, TooSlow
from sonorant.service.text.checks import MAX_INSTRUCTION_CHARS, check_text
from sonorant.service.text.directions import Directions
from sonorant.service.text.formats import PLAIN, TextFormat, WrittenAs
from sonorant.service.text.markdown import Part
from sonorant.service.text.pronunciations import Lexicon, check_pronunciations
from sonorant.service.text.segmenter import TextPolicy
from sonorant.service.text.sentences import AUTO, language_code
from sonorant.service.utterance.receipts import Receipts
from sonorant.service.utterance.scheduling import AT_ONCE, Scheduling
from sonorant.service.voices.choice import VoiceChoice
from sonorant.tts.v1 import synthesis_pb2
from sonorant.tts.v1.dictionary_pb2 import DictionaryReference

MAX_LANGUAGE_CHARS = 64
MAX_LEFT_OUT_CHARS = 200  # of a warning that names words
_TOP_K_OFF_FROM = 1 << 20  # more than any codebook has entries

_FORMATS = {
    TextFormat.PLAIN: synthesis_pb2.TEXT_FORMAT_PLAIN,
    TextFormat.MARKDOWN: synthesis_pb2.TEXT_FORMAT_MARKDOWN,
    TextFormat.SSML: synthesis_pb2.TEXT_FORMAT_SSML,
}
_PARTS = {
    Part.CODE: synthesis_pb2.MARKDOWN_PART_CODE,
    Part.TABLE: synthesis_pb2.MARKDOWN_PART_TABLE,
    Part.LINK: synthesis_pb2.MARKDOWN_PART_LINK,
}

_TIMESTAMP_MODES = frozenset(synthesis_pb2.TimestampMode.values())

# The fields of SynthesisConfig for the engine's parameters; sampling settings have the same names.
_FIELD_PATHS = {"language": "language", "instruct": "instructions", "non_streaming_mode": "non_streaming_mode"}
_SAMPLING = tuple(field.name for field in dataclasses.fields(SamplingParams))
_OF_THE_VOICE = ("speaker", "x_vector", "reference_codes", "reference_text")


@dataclass(frozen=True, slots=True)
class Warned:
    code: str
    message: str

    def to_proto(self) -> synthesis_pb2.Warning:
        return synthesis_pb2.Warning(code=self.code, message=self.message)


def is_slow(info: EngineInfo) -> bool:
    """Whether speech takes longer to be made than to be heard."""
    return info.real_time_factor is not None and info.real_time_factor > 1


def _slow(info: EngineInfo) -> str:
    return f"a second of speech takes {info.model} {info.real_time_factor:.1f} s here, too long to hear it meanwhile"


def left_out(words: Sequence[str]) -> Warned:
    """Return the warning about words of which the model is given nothing."""
    what = ", ".join(words)[:MAX_LEFT_OUT_CHARS]
    return Warned("WORDS_LEFT_OUT", f"not spoken, as the checkpoint knows no letter of them: {what}")


def passed_over(words: Sequence[str]) -> Warned:
    """Return the warning about words that the model has passed over."""
    what = ", ".join(words)[:MAX_LEFT_OUT_CHARS]
    return Warned("WORDS_SKIPPED", f"by its own report the model did not speak: {what}")


@dataclass(frozen=True, slots=True)
class UtteranceSpec:
    """A checked SynthesisConfig: how utterances are to sound."""

    params: SynthesisParams
    prompt: PromptLayout | None  # of these parameters, whatever their seed
    audio: AudioSpec
    voice_id: str
    info: EngineInfo  # of the checkpoint that speaks
    seed_given: bool
    max_frames_given: bool
    warnings: tuple[Warned, ...]
    timestamps: int = synthesis_pb2.TIMESTAMP_MODE_UNSPECIFIED
    resumable: bool = False  # send what is needed to resume it elsewhere
    receipts: Receipts | None = None  # to be sent with it
    packs_codes: bool = False  # send codes packed
    policy: TextPolicy = dataclasses.field(default_factory=TextPolicy)
    lexicon: Lexicon = dataclasses.field(default_factory=Lexicon)  # pronunciations, and dictionaries under them
    pronunciations: Mapping[str, str] = dataclasses.field(default_factory=dict)  # of the request itself
    dictionaries: tuple[tuple[str, int], ...] = ()  # ids and versions
    written_as: WrittenAs = PLAIN
    scheduling: Scheduling = AT_ONCE
    recording: Spent = NOTHING_SPENT  # what encoding its recording took
    instructions: str = ""  # those that the model follows; a designed voice has its description instead

    @property
    def times_words(self) -> bool:
        """Whether the engine reports when words are spoken. If it cannot, marks are estimates."""
        return self.timestamps == synthesis_pb2.TIMESTAMP_MODE_WORD and self.info.times_text

    def why_too_slow(self, asked_lead_ms: int) -> TooSlow | None:
        """Return why it is refused if the caller, who asked for a lead, is to hear it while it is made, and cannot.
        `asked_lead_ms` 0: it has asked for none, so it is only warned."""
        if not is_slow(self.info) or not asked_lead_ms or self.scheduling.is_background:
            return None
        return TooSlow(
            f"{_slow(self.info)}: leave out max_lead_ms and play it when it is whole, or call a faster server"
        )

    def replay(self) -> synthesis_pb2.SynthesisConfig:
        """The config with every default filled in, for the same audio from the same checkpoint."""
        return synthesis_pb2.SynthesisConfig(
            voice={"voice_id": self.voice_id} if self.voice_id else None,
            language=self.params.language,
            instructions=self.instructions,
            audio=self.audio.to_proto(),
            sampling=synthesis_pb2.Sampling(**{name: getattr(self.params.sampling, name) for name in _SAMPLING}),
            speed=self.audio.speed,
            volume_gain_db=self.audio.gain_db,
            pronunciations=self.pronunciations,
            dictionaries=[
                DictionaryReference(dictionary_id=name, version=version) for name, version in self.dictionaries
            ],
            non_streaming_mode=self.params.non_streaming_mode,
            text_format=_FORMATS[self.written_as.format],
            leave_out=sorted(_PARTS[part] for part in self.written_as.leave_out),
            directions=self.written_as.directions is not None,
        )

    def over(self, lexicon: Lexicon, dictionaries: tuple[tuple[str, int], ...]) -> "UtteranceSpec":
        """Return the spec with dictionaries, whose phrases are in `lexicon`, under its own pronunciations."""
        return replace(self, lexicon=self.lexicon.over(lexicon), dictionaries=dictionaries) if dictionaries else self


def check_timestamps(mode: int, field: str) -> int:
    """Return the mode. Raises InvalidField if it is unknown."""
    if mode not in _TIMESTAMP_MODES:
        raise InvalidField(field, f"{mode} is no TimestampMode")
    return mode


def check_synthesis(
    config: synthesis_pb2.SynthesisConfig,
    choice: VoiceChoice,
    engine: EnginePool,
    path: str,
    *,
    non_streaming_default: bool | None,
    whole: bool = False,
    default_format: TextFormat = TextFormat.PLAIN,
) -> UtteranceSpec:
    """Return the checked spec of a config. `choice`: the chosen voice. `path`: the config's path in its request, for
    errors. `whole`: see `check_audio`.

    `default_format`: of texts whose request names none. `non_streaming_default`: for requests that leave
    `non_streaming_mode` unset; None: the official package's default for the checkpoint's task.
    """
    _refuse_unserved(config, path)
    check_text(config.language, MAX_LANGUAGE_CHARS, f"{path}.language")
    info = choice.info
    audio = check_audio(config, info, path, whole=whole)
    sampling, warnings = _sampling(config, info, path, audio.speed)
    instruct = config.instructions
    check_text(instruct, MAX_INSTRUCTION_CHARS, f"{path}.instructions")
    if instruct and choice.design:
        raise InvalidField(f"{path}.instructions", "a designed voice has its description instead; leave them out")
    if instruct and not info.takes_instruct:
        warnings.append(Warned("INSTRUCTIONS_IGNORED", f"{info.model} takes no instructions; they were left out"))
        instruct = ""
    warnings += [Warned("SLOWER_THAN_SPEECH", _slow(info))] if is_slow(info) else []
    if non_streaming_default is None:
        non_streaming_default = info.task != "base"
    params = SynthesisParams(
        sampling=sampling,
        speaker=choice.speaker,
        language=config.language or "auto",
        instruct=choice.design or instruct,
        non_streaming_mode=(
            config.non_streaming_mode if config.HasField("non_streaming_mode") else non_streaming_default
        ),
        x_vector=choice.x_vector,
        reference_codes=choice.reference_codes,
        reference_text=choice.transcript,
        checkpoint=info.fingerprint,
    )
    return UtteranceSpec(
        params=params,
        prompt=_check_with_engine(engine, params, path, choice),
        audio=audio,
        voice_id=choice.voice_id,
        info=info,
        seed_given=config.sampling.HasField("seed"),
        max_frames_given=sampling.max_frames != info.default_sampling.max_frames,
        warnings=tuple(warnings),
        lexicon=check_pronunciations(config.pronunciations, f"{path}.pronunciations"),
        pronunciations=dict(config.pronunciations),
        written_as=_written_as(config, default_format, path, follows=info.takes_instruct and not choice.design),
        recording=choice.spent,
        instructions=instruct,
    )


def _refuse_unserved(config: synthesis_pb2.SynthesisConfig, path: str) -> None:
    if config.normalize_text:
        raise NotServed(f"{path}.normalize_text", "text normalization is not served yet; leave it unset")


def text_formats(default: TextFormat) -> "list[synthesis_pb2.TextFormat]":
    """Return all formats of text, a caller's default first."""
    return [_FORMATS[each] for each in sorted(TextFormat, key=lambda each: each is not default)]


def _written_as(config: synthesis_pb2.SynthesisConfig, default: TextFormat, path: str, *, follows: bool) -> WrittenAs:
    """`follows`: whether directions in the text can be followed."""
    named: dict[int, TextFormat] = {number: each for each, number in _FORMATS.items()}
    text_format = default if not config.text_format else named.get(config.text_format)
    if text_format is None:
        raise InvalidField(f"{path}.text_format", f"{config.text_format} is no TextFormat")
    parts = {number: part for part, number in _PARTS.items()}
    if unknown := [number for number in config.leave_out if number not in parts]:
        raise InvalidField(f"{path}.leave_out", f"{unknown[0]} is no MarkdownPart")
    if config.leave_out and text_format is not TextFormat.MARKDOWN:
        raise InvalidField(f"{path}.leave_out", "only of markdown; set text_format, too")
    if config.directions and text_format is TextFormat.SSML:
        raise InvalidField(f"{path}.directions", "SSML has elements in their place; leave it unset, or set text_format")
    directions = Directions(are_followed=follows) if config.directions else None
    is_english = language_code(config.language) in (AUTO, "en")
    return WrittenAs(text_format, frozenset(parts[number] for number in config.leave_out), directions, is_english)


def _check_with_engine(
    engine: EnginePool, params: SynthesisParams, path: str, choice: VoiceChoice
) -> PromptLayout | None:
    try:
        return engine.check(params)
    except InvalidSynthesis as error:
        field = f"{path}.{_FIELD_PATHS.get(error.field, f'sampling.{error.field}')}"
        if error.field in _OF_THE_VOICE:
            field = choice.field
        if isinstance(error, UnsupportedTask):
            raise NotServed(field, str(error), "CHECKPOINT_LACKS_TASK") from error
        raise InvalidField(field, str(error)) from error


def _sampling(
    config: synthesis_pb2.SynthesisConfig, info: EngineInfo, path: str, speed: float
) -> tuple[SamplingParams, list[Warned]]:
    """Return the sampling settings, and warnings. The engine checks ranges later; this checks what it cannot see."""
    values: dict[str, Any] = {}
    for field, value in config.sampling.ListFields():
        values[field.name] = decimal(value) if isinstance(value, float) else value
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidField(f"{path}.sampling.{field.name}", f"{value} is not a finite number")
    for name in ("top_k", "subtalker_top_k"):
        if name in values:
            values[name] = min(values[name], _TOP_K_OFF_FROM)
    defaults = info.default_sampling
    if config.max_audio_ms:
        limit = max(1, int(config.max_audio_ms * speed * info.frame_rate_hz / 1000))
        values["max_frames"] = min(values.get("max_frames", defaults.max_frames), limit)
    sampling = replace(defaults, **values)
    if sampling.min_frames > sampling.max_frames:
        if "min_frames" in values:
            raise InvalidField(
                f"{path}.sampling.min_frames",
                f"{sampling.min_frames} is over the limit of {sampling.max_frames} frames",
            )
        sampling = replace(sampling, min_frames=sampling.max_frames)
    return sampling, _ignored(values, sampling)


def _ignored(values: dict[str, Any], sampling: SamplingParams) -> list[Warned]:
    """Return a warning for settings without effect, since the request or the checkpoint decodes greedily."""
    names: list[str] = []
    if not sampling.do_sample:
        names += [name for name in ("temperature", "top_k", "top_p") if name in values]
    if not sampling.subtalker_do_sample:
        names += [f"subtalker_{name}" for name in ("temperature", "top_k", "top_p") if f"subtalker_{name}" in values]
    if not names:
        return []
    message = f"{', '.join(names)}: no effect, since decoding is greedy; set do_sample (subtalker_do_sample) to true"
    return [Warned("SAMPLING_IGNORED", message)]
