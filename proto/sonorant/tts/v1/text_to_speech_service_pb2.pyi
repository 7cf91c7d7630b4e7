import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from sonorant.tts.v1 import audio_pb2 as _audio_pb2
from sonorant.tts.v1 import explain_pb2 as _explain_pb2
from sonorant.tts.v1 import speak_pb2 as _speak_pb2
from sonorant.tts.v1 import synthesis_pb2 as _synthesis_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SynthesizeRequest(_message.Message):
    __slots__ = ("config", "text", "timestamps", "scheduling")
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMPS_FIELD_NUMBER: _ClassVar[int]
    SCHEDULING_FIELD_NUMBER: _ClassVar[int]
    config: _synthesis_pb2.SynthesisConfig
    text: str
    timestamps: _synthesis_pb2.TimestampMode
    scheduling: _synthesis_pb2.Scheduling
    def __init__(self, config: _Optional[_Union[_synthesis_pb2.SynthesisConfig, _Mapping]] = ..., text: _Optional[str] = ..., timestamps: _Optional[_Union[_synthesis_pb2.TimestampMode, str]] = ..., scheduling: _Optional[_Union[_synthesis_pb2.Scheduling, _Mapping]] = ...) -> None: ...

class SynthesizeResponse(_message.Message):
    __slots__ = ("audio", "format", "marks", "stats", "reason", "voice_id", "seed", "warnings", "replay", "checkpoint", "usage")
    AUDIO_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    VOICE_ID_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    REPLAY_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    audio: bytes
    format: _audio_pb2.AudioFormat
    marks: _containers.RepeatedCompositeFieldContainer[_synthesis_pb2.Mark]
    stats: _synthesis_pb2.SynthesisStats
    reason: _synthesis_pb2.FinishReason
    voice_id: str
    seed: int
    warnings: _containers.RepeatedCompositeFieldContainer[_synthesis_pb2.Warning]
    replay: _synthesis_pb2.SynthesisConfig
    checkpoint: str
    usage: _synthesis_pb2.Usage
    def __init__(self, audio: _Optional[bytes] = ..., format: _Optional[_Union[_audio_pb2.AudioFormat, _Mapping]] = ..., marks: _Optional[_Iterable[_Union[_synthesis_pb2.Mark, _Mapping]]] = ..., stats: _Optional[_Union[_synthesis_pb2.SynthesisStats, _Mapping]] = ..., reason: _Optional[_Union[_synthesis_pb2.FinishReason, str]] = ..., voice_id: _Optional[str] = ..., seed: _Optional[int] = ..., warnings: _Optional[_Iterable[_Union[_synthesis_pb2.Warning, _Mapping]]] = ..., replay: _Optional[_Union[_synthesis_pb2.SynthesisConfig, _Mapping]] = ..., checkpoint: _Optional[str] = ..., usage: _Optional[_Union[_synthesis_pb2.Usage, _Mapping]] = ...) -> None: ...

class SynthesizeStreamRequest(_message.Message):
    __slots__ = ("config", "text", "timestamps", "max_lead_ms", "max_silence_ms", "scheduling")
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMPS_FIELD_NUMBER: _ClassVar[int]
    MAX_LEAD_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_SILENCE_MS_FIELD_NUMBER: _ClassVar[int]
    SCHEDULING_FIELD_NUMBER: _ClassVar[int]
    config: _synthesis_pb2.SynthesisConfig
    text: str
    timestamps: _synthesis_pb2.TimestampMode
    max_lead_ms: int
    max_silence_ms: int
    scheduling: _synthesis_pb2.Scheduling
    def __init__(self, config: _Optional[_Union[_synthesis_pb2.SynthesisConfig, _Mapping]] = ..., text: _Optional[str] = ..., timestamps: _Optional[_Union[_synthesis_pb2.TimestampMode, str]] = ..., max_lead_ms: _Optional[int] = ..., max_silence_ms: _Optional[int] = ..., scheduling: _Optional[_Union[_synthesis_pb2.Scheduling, _Mapping]] = ...) -> None: ...

class SynthesizeStreamResponse(_message.Message):
    __slots__ = ("started", "audio", "marks", "done", "warning", "alive", "queued")
    STARTED_FIELD_NUMBER: _ClassVar[int]
    AUDIO_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    WARNING_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    started: _synthesis_pb2.UtteranceStarted
    audio: _audio_pb2.AudioChunk
    marks: _synthesis_pb2.Marks
    done: _synthesis_pb2.UtteranceDone
    warning: _synthesis_pb2.Warning
    alive: _speak_pb2.Alive
    queued: _synthesis_pb2.Queued
    def __init__(self, started: _Optional[_Union[_synthesis_pb2.UtteranceStarted, _Mapping]] = ..., audio: _Optional[_Union[_audio_pb2.AudioChunk, _Mapping]] = ..., marks: _Optional[_Union[_synthesis_pb2.Marks, _Mapping]] = ..., done: _Optional[_Union[_synthesis_pb2.UtteranceDone, _Mapping]] = ..., warning: _Optional[_Union[_synthesis_pb2.Warning, _Mapping]] = ..., alive: _Optional[_Union[_speak_pb2.Alive, _Mapping]] = ..., queued: _Optional[_Union[_synthesis_pb2.Queued, _Mapping]] = ...) -> None: ...

class DecodeConfig(_message.Message):
    __slots__ = ("audio", "speed", "volume_gain_db")
    AUDIO_FIELD_NUMBER: _ClassVar[int]
    SPEED_FIELD_NUMBER: _ClassVar[int]
    VOLUME_GAIN_DB_FIELD_NUMBER: _ClassVar[int]
    audio: _audio_pb2.AudioFormat
    speed: float
    volume_gain_db: float
    def __init__(self, audio: _Optional[_Union[_audio_pb2.AudioFormat, _Mapping]] = ..., speed: _Optional[float] = ..., volume_gain_db: _Optional[float] = ...) -> None: ...

class DecodeRequest(_message.Message):
    __slots__ = ("config", "codes", "max_lead_ms")
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    CODES_FIELD_NUMBER: _ClassVar[int]
    MAX_LEAD_MS_FIELD_NUMBER: _ClassVar[int]
    config: DecodeConfig
    codes: bytes
    max_lead_ms: int
    def __init__(self, config: _Optional[_Union[DecodeConfig, _Mapping]] = ..., codes: _Optional[bytes] = ..., max_lead_ms: _Optional[int] = ...) -> None: ...

class DecodeStarted(_message.Message):
    __slots__ = ("audio", "audio_ms", "checkpoint")
    AUDIO_FIELD_NUMBER: _ClassVar[int]
    AUDIO_MS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    audio: _audio_pb2.AudioFormat
    audio_ms: int
    checkpoint: str
    def __init__(self, audio: _Optional[_Union[_audio_pb2.AudioFormat, _Mapping]] = ..., audio_ms: _Optional[int] = ..., checkpoint: _Optional[str] = ...) -> None: ...

class DecodeResponse(_message.Message):
    __slots__ = ("started", "audio", "done")
    STARTED_FIELD_NUMBER: _ClassVar[int]
    AUDIO_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    started: DecodeStarted
    audio: _audio_pb2.AudioChunk
    done: _synthesis_pb2.UtteranceDone
    def __init__(self, started: _Optional[_Union[DecodeStarted, _Mapping]] = ..., audio: _Optional[_Union[_audio_pb2.AudioChunk, _Mapping]] = ..., done: _Optional[_Union[_synthesis_pb2.UtteranceDone, _Mapping]] = ...) -> None: ...

class GetCapabilitiesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetCapabilitiesResponse(_message.Message):
    __slots__ = ("model", "server_version", "native_sample_rate_hz", "sample_rates_hz", "encodings", "languages", "supports_cloning", "supports_design", "timestamp_modes", "max_text_chars", "max_utterances_per_session", "max_sessions", "active_sessions", "max_streams", "active_streams", "max_text_chars_per_minute", "word_timing_models", "max_segment_chars", "text_formats", "models")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SERVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    NATIVE_SAMPLE_RATE_HZ_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_RATES_HZ_FIELD_NUMBER: _ClassVar[int]
    ENCODINGS_FIELD_NUMBER: _ClassVar[int]
    LANGUAGES_FIELD_NUMBER: _ClassVar[int]
    SUPPORTS_CLONING_FIELD_NUMBER: _ClassVar[int]
    SUPPORTS_DESIGN_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MODES_FIELD_NUMBER: _ClassVar[int]
    MAX_TEXT_CHARS_FIELD_NUMBER: _ClassVar[int]
    MAX_UTTERANCES_PER_SESSION_FIELD_NUMBER: _ClassVar[int]
    MAX_SESSIONS_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_SESSIONS_FIELD_NUMBER: _ClassVar[int]
    MAX_STREAMS_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_STREAMS_FIELD_NUMBER: _ClassVar[int]
    MAX_TEXT_CHARS_PER_MINUTE_FIELD_NUMBER: _ClassVar[int]
    WORD_TIMING_MODELS_FIELD_NUMBER: _ClassVar[int]
    MAX_SEGMENT_CHARS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FORMATS_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    model: str
    server_version: str
    native_sample_rate_hz: int
    sample_rates_hz: _containers.RepeatedScalarFieldContainer[int]
    encodings: _containers.RepeatedScalarFieldContainer[_audio_pb2.AudioEncoding]
    languages: _containers.RepeatedScalarFieldContainer[str]
    supports_cloning: bool
    supports_design: bool
    timestamp_modes: _containers.RepeatedScalarFieldContainer[_synthesis_pb2.TimestampMode]
    max_text_chars: int
    max_utterances_per_session: int
    max_sessions: int
    active_sessions: int
    max_streams: int
    active_streams: int
    max_text_chars_per_minute: int
    word_timing_models: _containers.RepeatedScalarFieldContainer[str]
    max_segment_chars: int
    text_formats: _containers.RepeatedScalarFieldContainer[_synthesis_pb2.TextFormat]
    models: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, model: _Optional[str] = ..., server_version: _Optional[str] = ..., native_sample_rate_hz: _Optional[int] = ..., sample_rates_hz: _Optional[_Iterable[int]] = ..., encodings: _Optional[_Iterable[_Union[_audio_pb2.AudioEncoding, str]]] = ..., languages: _Optional[_Iterable[str]] = ..., supports_cloning: bool = ..., supports_design: bool = ..., timestamp_modes: _Optional[_Iterable[_Union[_synthesis_pb2.TimestampMode, str]]] = ..., max_text_chars: _Optional[int] = ..., max_utterances_per_session: _Optional[int] = ..., max_sessions: _Optional[int] = ..., active_sessions: _Optional[int] = ..., max_streams: _Optional[int] = ..., active_streams: _Optional[int] = ..., max_text_chars_per_minute: _Optional[int] = ..., word_timing_models: _Optional[_Iterable[str]] = ..., max_segment_chars: _Optional[int] = ..., text_formats: _Optional[_Iterable[_Union[_synthesis_pb2.TextFormat, str]]] = ..., models: _Optional[_Iterable[str]] = ...) -> None: ...

class GetUsageRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetUsageResponse(_message.Message):
    __slots__ = ("key", "usage", "since", "max_text_chars_per_minute", "text_chars_left", "max_sessions", "active_sessions")
    KEY_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    MAX_TEXT_CHARS_PER_MINUTE_FIELD_NUMBER: _ClassVar[int]
    TEXT_CHARS_LEFT_FIELD_NUMBER: _ClassVar[int]
    MAX_SESSIONS_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_SESSIONS_FIELD_NUMBER: _ClassVar[int]
    key: str
    usage: _synthesis_pb2.Usage
    since: _timestamp_pb2.Timestamp
    max_text_chars_per_minute: int
    text_chars_left: int
    max_sessions: int
    active_sessions: int
    def __init__(self, key: _Optional[str] = ..., usage: _Optional[_Union[_synthesis_pb2.Usage, _Mapping]] = ..., since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., max_text_chars_per_minute: _Optional[int] = ..., text_chars_left: _Optional[int] = ..., max_sessions: _Optional[int] = ..., active_sessions: _Optional[int] = ...) -> None: ...
