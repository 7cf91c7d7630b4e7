"""Checks what a session is told of itself: its config, how its text is committed, and the ids of its utterances."""

from dataclasses import dataclass, replace

from sonorant.engine import EnginePool
from sonorant.service.errors import InvalidField
from sonorant.service.text.formats import TextFormat
from sonorant.service.text.segmenter import BUFFER_DELAYS_MS, CommitMode, TextPolicy
from sonorant.service.text.sentences import language_code
from sonorant.service.utterance.requests import UtteranceSpec, check_synthesis, check_timestamps
from sonorant.service.utterance.scheduling import check_scheduling
from sonorant.service.voices.choice import VoiceChoice
from sonorant.tts.v1 import speak_pb2, text_to_speech_service_pb2

MAX_LEAD_MS = 600_000
DEFAULT_LEAD_MS = 2000
IDLE_TIMEOUTS_MS = range(100, 3_600_001)
SILENCES_MS = range(100, 60_001)
DEFAULT_IDLE_TIMEOUT_MS = 120_000
FIRST_CHUNKS_CHARS = range(1001)
MAX_UTTERANCE_ID_CHARS = 64

_COMMIT_MODES = {
    speak_pb2.COMMIT_MODE_UNSPECIFIED: CommitMode.TOKEN,
    speak_pb2.COMMIT_MODE_TOKEN: CommitMode.TOKEN,
    speak_pb2.COMMIT_MODE_SENTENCE: CommitMode.SENTENCE,
    speak_pb2.COMMIT_MODE_MANUAL: CommitMode.MANUAL,
}


@dataclass(frozen=True, slots=True)
class SpeakSpec:
    """A checked SpeakConfig."""

    utterance: UtteranceSpec
    max_lead_ms: int
    asked_lead_ms: int  # 0: the caller has asked for none
    idle_timeout_s: float
    max_silence_s: float | None  # None: no keepalives


def check_speak_config(
    config: speak_pb2.SpeakConfig,
    choice: VoiceChoice,
    engine: EnginePool,
    default_format: TextFormat = TextFormat.PLAIN,
    default_delay_ms: int | None = None,
) -> SpeakSpec:
    """`default_format`, `default_delay_ms`: the caller's own, for a config that does not say it."""
    idle_ms = config.idle_timeout_ms if config.HasField("idle_timeout_ms") else DEFAULT_IDLE_TIMEOUT_MS
    if idle_ms not in IDLE_TIMEOUTS_MS:
        raise InvalidField(
            "config.idle_timeout_ms", f"{idle_ms} is not within {IDLE_TIMEOUTS_MS.start} to {IDLE_TIMEOUTS_MS.stop - 1}"
        )
    lead_ms = config.max_lead_ms if config.HasField("max_lead_ms") else DEFAULT_LEAD_MS
    synthesis = check_synthesis(
        config.synthesis,
        choice,
        engine,
        "config.synthesis",
        non_streaming_default=False,
        default_format=default_format,
    )
    return SpeakSpec(
        utterance=replace(
            synthesis,
            timestamps=check_timestamps(config.timestamps, "config.timestamps"),
            resumable=config.resumable,
            packs_codes=config.resumable and config.pack_codes,
            policy=check_text_policy(
                config.text_policy, synthesis.params.language, "config.text_policy", default_delay_ms
            ),
            scheduling=check_scheduling(config.scheduling, "config.scheduling"),
        ),
        max_lead_ms=check_lead(lead_ms, "config.max_lead_ms"),
        asked_lead_ms=config.max_lead_ms,
        idle_timeout_s=idle_ms / 1000,
        max_silence_s=check_silence(config, "config.max_silence_ms"),
    )


def check_silence(
    request: speak_pb2.SpeakConfig | text_to_speech_service_pb2.SynthesizeStreamRequest, field: str
) -> float | None:
    """Return the longest silence of the server in seconds, or None if the client wants no keepalives."""
    if not request.HasField("max_silence_ms"):
        return None
    if request.max_silence_ms not in SILENCES_MS:
        message = f"{request.max_silence_ms} is not within {SILENCES_MS.start} to {SILENCES_MS.stop - 1}"
        raise InvalidField(field, message)
    return request.max_silence_ms / 1000


def check_lead(max_lead_ms: int, field: str) -> int:
    if max_lead_ms > MAX_LEAD_MS:
        raise InvalidField(field, f"{max_lead_ms} is over {MAX_LEAD_MS}; 0 means no limit")
    return max_lead_ms


def check_text_policy(
    policy: speak_pb2.TextPolicy, language: str, path: str, default_delay_ms: int | None = None
) -> TextPolicy:
    if policy.mode not in _COMMIT_MODES:
        raise InvalidField(f"{path}.mode", f"{policy.mode} is no CommitMode")
    for name, limits in (("max_buffer_delay_ms", BUFFER_DELAYS_MS), ("first_chunk_min_chars", FIRST_CHUNKS_CHARS)):
        if not policy.HasField(name):
            continue
        if policy.mode == speak_pb2.COMMIT_MODE_MANUAL:
            raise InvalidField(f"{path}.{name}", "COMMIT_MODE_MANUAL waits for `flush` or `end` alone; leave it unset")
        if getattr(policy, name) not in limits:
            message = f"{getattr(policy, name)} is not within {limits.start} to {limits.stop - 1}"
            raise InvalidField(f"{path}.{name}", message)
    delay_ms = policy.max_buffer_delay_ms if policy.HasField("max_buffer_delay_ms") else default_delay_ms
    return TextPolicy(
        mode=_COMMIT_MODES[policy.mode],
        max_buffer_delay_s=None if delay_ms is None else delay_ms / 1000,
        first_chunk_min_chars=policy.first_chunk_min_chars,
        language=language_code(language),
    )


def check_utterance_id(utterance_id: str) -> None:
    """Check the utterance id of a request. Requests that may have "*" handle it before."""
    if len(utterance_id) > MAX_UTTERANCE_ID_CHARS or not utterance_id.isprintable() or utterance_id == "*":
        raise InvalidField(
            "utterance_id", f'use at most {MAX_UTTERANCE_ID_CHARS} printable characters ("*" only with cancel)'
        )
