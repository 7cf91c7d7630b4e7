"""Makes the configs of requests from their common fields."""

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from sonorant.client.errors import unknown_name
from sonorant.tts.v1.audio_pb2 import AudioEncoding, AudioFormat
from sonorant.tts.v1.dictionary_pb2 import DictionaryReference
from sonorant.tts.v1.speak_pb2 import CommitMode, SpeakConfig, TextPolicy
from sonorant.tts.v1.synthesis_pb2 import (
    PRIORITY_BATCH,
    TIMESTAMP_MODE_WORD,
    MarkdownPart,
    Sampling,
    Scheduling,
    SynthesisConfig,
    TextFormat,
)
from sonorant.tts.v1.voice_pb2 import ReferenceAudio, VoiceMix, VoiceSelector

LONGEST_IDLE_MS = 3_600_000  # for a session whose text may pause for longer than the two minutes that are usual


def _names(enum: Any, prefix: str) -> tuple[str, ...]:
    """Return the names in an enum of the contract, as people write them, but for the unspecified one."""
    return tuple(name.removeprefix(prefix).lower() for name in enum.keys()[1:])


COMMIT_MODES = _names(CommitMode, "COMMIT_MODE_")
ENCODINGS = _names(AudioEncoding, "AUDIO_ENCODING_")
TEXT_FORMATS = _names(TextFormat, "TEXT_FORMAT_")
MARKDOWN_PARTS = _names(MarkdownPart, "MARKDOWN_PART_")


def synthesis_config(
    *,
    voice: str = "",
    design: str = "",
    reference: bytes | None = None,
    transcript: str = "",
    mix: VoiceMix | None = None,
    language: str = "",
    instructions: str = "",
    encoding: str = "",
    sample_rate_hz: int = 0,
    frame_duration_ms: int = 0,
    bitrate_bps: int = 0,
    speed: float | None = None,
    volume_gain_db: float | None = None,
    max_audio_ms: int = 0,
    pronunciations: Mapping[str, str] | None = None,
    dictionaries: Iterable[str] = (),
    non_streaming_mode: bool | None = None,
    text_format: str = "",
    leave_out: Iterable[str] = (),
    directions: bool = False,
    **sampling: Any,
) -> SynthesisConfig:
    """Make a SynthesisConfig from its common fields and those of its `Sampling` (temperature, seed, ...).

    `text_format`: "plain", "markdown" or "ssml". `leave_out`: what of markdown is not said: "code" (blocks), "table",
    "link" (addresses). `directions`: those of the text in brackets are followed: "[whispering]", "[pause 500ms]".
    `dictionaries`: at most 4 that the server keeps, as "names" or, in one version, "names@3"; the first one that has a
    phrase counts, and `pronunciations` before all. A field that is left out takes the default of the server or the
    checkpoint. Raises InvalidRequest for an unknown name. Instead of `voice`, give `design`, a
    description of the voice; `reference`, a recording of it (with `transcript`, what is said there); or `mix`, made of
    several voices by `voice_mix`.
    """
    config = SynthesisConfig(
        voice=_selector(voice, design, reference, transcript, mix),
        language=language,
        instructions=instructions,
        audio=audio_format(encoding, sample_rate_hz, frame_duration_ms, bitrate_bps),
        sampling=_sampling(sampling),
        speed=speed,
        volume_gain_db=volume_gain_db,
        max_audio_ms=max_audio_ms,
        pronunciations=pronunciations,
        dictionaries=map(_dictionary, dictionaries),
        text_format=_number(TextFormat, "TEXT_FORMAT_", "text_format", text_format),
        leave_out=[_number(MarkdownPart, "MARKDOWN_PART_", "leave_out", part) for part in leave_out],
        directions=directions,
    )
    if non_streaming_mode is not None:
        config.non_streaming_mode = non_streaming_mode
    return config


def scheduling(*, batch: bool = False, max_wait_ms: int = 0) -> Scheduling:
    """Say what happens when the server is full. `batch`: nobody listens, so others go first. `max_wait_ms`: how long an
    utterance may wait for a place."""
    return Scheduling(priority=PRIORITY_BATCH if batch else None, max_wait_ms=max_wait_ms)


def audio_format(encoding: str, sample_rate_hz: int, frame_duration_ms: int, bitrate_bps: int) -> AudioFormat:
    return AudioFormat(
        encoding=_number(AudioEncoding, "AUDIO_ENCODING_", "encoding", encoding),
        sample_rate_hz=sample_rate_hz,
        frame_duration_ms=frame_duration_ms,
        bitrate_bps=bitrate_bps,
    )


def text_policy(
    mode: str = "", *, max_buffer_delay_ms: int | None = None, first_chunk_min_chars: int | None = None
) -> TextPolicy:
    """Say when text is passed to the model. `mode`: "token" (the default), "sentence", or "manual", only at a flush or
    the end. `max_buffer_delay_ms`: how long to wait for more text before all so far is spoken to its end; by default
    300 ms after the mark of a sentence, 2 s after other words. `first_chunk_min_chars`: how much text to wait for
    before speech begins."""
    return TextPolicy(
        mode=_number(CommitMode, "COMMIT_MODE_", "mode", mode),
        max_buffer_delay_ms=max_buffer_delay_ms,
        first_chunk_min_chars=first_chunk_min_chars,
    )


def utterance_config(
    config: SynthesisConfig | None = None,
    *,
    timestamps: bool = False,
    scheduling: Scheduling | None = None,
    text_policy: TextPolicy | None = None,
) -> SpeakConfig:
    """Join what may differ from utterance to utterance of a session."""
    return SpeakConfig(
        synthesis=config,
        text_policy=text_policy,
        timestamps=TIMESTAMP_MODE_WORD if timestamps else None,
        scheduling=scheduling,
    )


def _number(enum: Any, prefix: str, field: str, name: str) -> Any:
    """Return the number of a name in an enum of the contract. Raises InvalidRequest."""
    if name and name not in (known := _names(enum, prefix)):
        raise unknown_name(field, name, known)
    return enum.Value(prefix + (name or "unspecified").upper())


def _dictionary(name: str) -> DictionaryReference:
    dictionary_id, at, version = name.partition("@")
    if at and not (version.isascii() and version.isdigit()):
        raise ValueError(f'dictionaries: {name!r} is not ID or ID@VERSION, as in "names@3"')
    return DictionaryReference(dictionary_id=dictionary_id, version=int(version or 0))


def _sampling(fields: Mapping[str, Any]) -> Sampling:
    known = [field.name for field in Sampling.DESCRIPTOR.fields]
    for name in fields:
        if name not in known:
            raise unknown_name("synthesis_config", name, [*known, *CONFIG_FIELDS])
    return Sampling(**fields)


def _selector(
    voice: str, design: str, reference: bytes | None, transcript: str, mix: VoiceMix | None
) -> VoiceSelector | None:
    if reference is not None and not reference:
        raise ValueError("reference is empty; give the bytes of a recording, or leave it out")
    if sum(map(bool, (voice, design, reference, mix))) > 1:
        raise ValueError("voice, design, reference and mix exclude each other; give one of them")
    if transcript and not reference:
        raise ValueError("transcript is what is said in the reference; give the reference, too")
    if reference:
        return VoiceSelector(reference=ReferenceAudio(audio=reference, transcript=transcript))
    if mix:
        return VoiceSelector(mix=mix)
    return VoiceSelector(design=design) if design else VoiceSelector(voice_id=voice) if voice else None


CONFIG_FIELDS = [name for name in inspect.signature(synthesis_config).parameters if name != "sampling"]
