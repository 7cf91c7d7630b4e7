from sonorant.tts.v1 import audio_pb2 as _audio_pb2
from sonorant.tts.v1 import synthesis_pb2 as _synthesis_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CommitMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COMMIT_MODE_UNSPECIFIED: _ClassVar[CommitMode]
    COMMIT_MODE_TOKEN: _ClassVar[CommitMode]
    COMMIT_MODE_SENTENCE: _ClassVar[CommitMode]
    COMMIT_MODE_MANUAL: _ClassVar[CommitMode]
COMMIT_MODE_UNSPECIFIED: CommitMode
COMMIT_MODE_TOKEN: CommitMode
COMMIT_MODE_SENTENCE: CommitMode
COMMIT_MODE_MANUAL: CommitMode

class TextPolicy(_message.Message):
    __slots__ = ("mode", "max_buffer_delay_ms", "first_chunk_min_chars")
    MODE_FIELD_NUMBER: _ClassVar[int]
    MAX_BUFFER_DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    FIRST_CHUNK_MIN_CHARS_FIELD_NUMBER: _ClassVar[int]
    mode: CommitMode
    max_buffer_delay_ms: int
    first_chunk_min_chars: int
    def __init__(self, mode: _Optional[_Union[CommitMode, str]] = ..., max_buffer_delay_ms: _Optional[int] = ..., first_chunk_min_chars: _Optional[int] = ...) -> None: ...

class SpeakConfig(_message.Message):
    __slots__ = ("synthesis", "text_policy", "timestamps", "max_lead_ms", "idle_timeout_ms", "resumable", "max_silence_ms", "pack_codes", "opening", "scheduling")
    SYNTHESIS_FIELD_NUMBER: _ClassVar[int]
    TEXT_POLICY_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMPS_FIELD_NUMBER: _ClassVar[int]
    MAX_LEAD_MS_FIELD_NUMBER: _ClassVar[int]
    IDLE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    RESUMABLE_FIELD_NUMBER: _ClassVar[int]
    MAX_SILENCE_MS_FIELD_NUMBER: _ClassVar[int]
    PACK_CODES_FIELD_NUMBER: _ClassVar[int]
    OPENING_FIELD_NUMBER: _ClassVar[int]
    SCHEDULING_FIELD_NUMBER: _ClassVar[int]
    synthesis: _synthesis_pb2.SynthesisConfig
    text_policy: TextPolicy
    timestamps: _synthesis_pb2.TimestampMode
    max_lead_ms: int
    idle_timeout_ms: int
    resumable: bool
    max_silence_ms: int
    pack_codes: bool
    opening: Opening
    scheduling: _synthesis_pb2.Scheduling
    def __init__(self, synthesis: _Optional[_Union[_synthesis_pb2.SynthesisConfig, _Mapping]] = ..., text_policy: _Optional[_Union[TextPolicy, _Mapping]] = ..., timestamps: _Optional[_Union[_synthesis_pb2.TimestampMode, str]] = ..., max_lead_ms: _Optional[int] = ..., idle_timeout_ms: _Optional[int] = ..., resumable: bool = ..., max_silence_ms: _Optional[int] = ..., pack_codes: bool = ..., opening: _Optional[_Union[Opening, _Mapping]] = ..., scheduling: _Optional[_Union[_synthesis_pb2.Scheduling, _Mapping]] = ...) -> None: ...

class Opening(_message.Message):
    __slots__ = ("utterance_id", "text", "end")
    UTTERANCE_ID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    utterance_id: str
    text: str
    end: bool
    def __init__(self, utterance_id: _Optional[str] = ..., text: _Optional[str] = ..., end: bool = ...) -> None: ...

class Flush(_message.Message):
    __slots__ = ("flush_id", "pause_ms", "carry_on")
    FLUSH_ID_FIELD_NUMBER: _ClassVar[int]
    PAUSE_MS_FIELD_NUMBER: _ClassVar[int]
    CARRY_ON_FIELD_NUMBER: _ClassVar[int]
    flush_id: int
    pause_ms: int
    carry_on: bool
    def __init__(self, flush_id: _Optional[int] = ..., pause_ms: _Optional[int] = ..., carry_on: bool = ...) -> None: ...

class Revise(_message.Message):
    __slots__ = ("from_char", "text")
    FROM_CHAR_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    from_char: int
    text: str
    def __init__(self, from_char: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class EndUtterance(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Cancel(_message.Message):
    __slots__ = ("played_ms",)
    PLAYED_MS_FIELD_NUMBER: _ClassVar[int]
    played_ms: int
    def __init__(self, played_ms: _Optional[int] = ...) -> None: ...

class PlaybackReport(_message.Message):
    __slots__ = ("played_ms",)
    PLAYED_MS_FIELD_NUMBER: _ClassVar[int]
    played_ms: int
    def __init__(self, played_ms: _Optional[int] = ...) -> None: ...

class Resume(_message.Message):
    __slots__ = ("replay", "checkpoint", "received_samples", "received_chunks", "segments", "committed_chars", "played_ms", "receipt", "heard_text", "marks")
    REPLAY_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_CHUNKS_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_CHARS_FIELD_NUMBER: _ClassVar[int]
    PLAYED_MS_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    HEARD_TEXT_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    replay: _synthesis_pb2.SynthesisConfig
    checkpoint: str
    received_samples: int
    received_chunks: int
    segments: _containers.RepeatedCompositeFieldContainer[_audio_pb2.SegmentCodes]
    committed_chars: _containers.RepeatedScalarFieldContainer[int]
    played_ms: int
    receipt: _audio_pb2.Receipt
    heard_text: str
    marks: _containers.RepeatedCompositeFieldContainer[_synthesis_pb2.Mark]
    def __init__(self, replay: _Optional[_Union[_synthesis_pb2.SynthesisConfig, _Mapping]] = ..., checkpoint: _Optional[str] = ..., received_samples: _Optional[int] = ..., received_chunks: _Optional[int] = ..., segments: _Optional[_Iterable[_Union[_audio_pb2.SegmentCodes, _Mapping]]] = ..., committed_chars: _Optional[_Iterable[int]] = ..., played_ms: _Optional[int] = ..., receipt: _Optional[_Union[_audio_pb2.Receipt, _Mapping]] = ..., heard_text: _Optional[str] = ..., marks: _Optional[_Iterable[_Union[_synthesis_pb2.Mark, _Mapping]]] = ...) -> None: ...

class SpeakRequest(_message.Message):
    __slots__ = ("utterance_id", "config", "text", "flush", "end", "cancel", "playback", "resume", "revise")
    UTTERANCE_ID_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    FLUSH_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    PLAYBACK_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    REVISE_FIELD_NUMBER: _ClassVar[int]
    utterance_id: str
    config: SpeakConfig
    text: str
    flush: Flush
    end: EndUtterance
    cancel: Cancel
    playback: PlaybackReport
    resume: Resume
    revise: Revise
    def __init__(self, utterance_id: _Optional[str] = ..., config: _Optional[_Union[SpeakConfig, _Mapping]] = ..., text: _Optional[str] = ..., flush: _Optional[_Union[Flush, _Mapping]] = ..., end: _Optional[_Union[EndUtterance, _Mapping]] = ..., cancel: _Optional[_Union[Cancel, _Mapping]] = ..., playback: _Optional[_Union[PlaybackReport, _Mapping]] = ..., resume: _Optional[_Union[Resume, _Mapping]] = ..., revise: _Optional[_Union[Revise, _Mapping]] = ...) -> None: ...

class SessionStarted(_message.Message):
    __slots__ = ("session_id", "model", "audio", "max_utterance_chars", "max_lead_ms", "idle_timeout_ms", "resumable", "max_silence_ms")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    AUDIO_FIELD_NUMBER: _ClassVar[int]
    MAX_UTTERANCE_CHARS_FIELD_NUMBER: _ClassVar[int]
    MAX_LEAD_MS_FIELD_NUMBER: _ClassVar[int]
    IDLE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    RESUMABLE_FIELD_NUMBER: _ClassVar[int]
    MAX_SILENCE_MS_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    model: str
    audio: _audio_pb2.AudioFormat
    max_utterance_chars: int
    max_lead_ms: int
    idle_timeout_ms: int
    resumable: bool
    max_silence_ms: int
    def __init__(self, session_id: _Optional[str] = ..., model: _Optional[str] = ..., audio: _Optional[_Union[_audio_pb2.AudioFormat, _Mapping]] = ..., max_utterance_chars: _Optional[int] = ..., max_lead_ms: _Optional[int] = ..., idle_timeout_ms: _Optional[int] = ..., resumable: bool = ..., max_silence_ms: _Optional[int] = ...) -> None: ...

class Committed(_message.Message):
    __slots__ = ("chars",)
    CHARS_FIELD_NUMBER: _ClassVar[int]
    chars: int
    def __init__(self, chars: _Optional[int] = ...) -> None: ...

class Revised(_message.Message):
    __slots__ = ("from_char", "text_char", "flush_ids")
    FROM_CHAR_FIELD_NUMBER: _ClassVar[int]
    TEXT_CHAR_FIELD_NUMBER: _ClassVar[int]
    FLUSH_IDS_FIELD_NUMBER: _ClassVar[int]
    from_char: int
    text_char: int
    flush_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, from_char: _Optional[int] = ..., text_char: _Optional[int] = ..., flush_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class FlushDone(_message.Message):
    __slots__ = ("flush_id", "audio_ms")
    FLUSH_ID_FIELD_NUMBER: _ClassVar[int]
    AUDIO_MS_FIELD_NUMBER: _ClassVar[int]
    flush_id: int
    audio_ms: int
    def __init__(self, flush_id: _Optional[int] = ..., audio_ms: _Optional[int] = ...) -> None: ...

class Alive(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GoAway(_message.Message):
    __slots__ = ("drain_ms",)
    DRAIN_MS_FIELD_NUMBER: _ClassVar[int]
    drain_ms: int
    def __init__(self, drain_ms: _Optional[int] = ...) -> None: ...

class SpeakResponse(_message.Message):
    __slots__ = ("utterance_id", "session", "started", "audio", "marks", "flush_done", "done", "warning", "go_away", "committed", "revised", "alive", "queued")
    UTTERANCE_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    AUDIO_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    FLUSH_DONE_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    WARNING_FIELD_NUMBER: _ClassVar[int]
    GO_AWAY_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    REVISED_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    utterance_id: str
    session: SessionStarted
    started: _synthesis_pb2.UtteranceStarted
    audio: _audio_pb2.AudioChunk
    marks: _synthesis_pb2.Marks
    flush_done: FlushDone
    done: _synthesis_pb2.UtteranceDone
    warning: _synthesis_pb2.Warning
    go_away: GoAway
    committed: Committed
    revised: Revised
    alive: Alive
    queued: _synthesis_pb2.Queued
    def __init__(self, utterance_id: _Optional[str] = ..., session: _Optional[_Union[SessionStarted, _Mapping]] = ..., started: _Optional[_Union[_synthesis_pb2.UtteranceStarted, _Mapping]] = ..., audio: _Optional[_Union[_audio_pb2.AudioChunk, _Mapping]] = ..., marks: _Optional[_Union[_synthesis_pb2.Marks, _Mapping]] = ..., flush_done: _Optional[_Union[FlushDone, _Mapping]] = ..., done: _Optional[_Union[_synthesis_pb2.UtteranceDone, _Mapping]] = ..., warning: _Optional[_Union[_synthesis_pb2.Warning, _Mapping]] = ..., go_away: _Optional[_Union[GoAway, _Mapping]] = ..., committed: _Optional[_Union[Committed, _Mapping]] = ..., revised: _Optional[_Union[Revised, _Mapping]] = ..., alive: _Optional[_Union[Alive, _Mapping]] = ..., queued: _Optional[_Union[_synthesis_pb2.Queued, _Mapping]] = ...) -> None: ...
