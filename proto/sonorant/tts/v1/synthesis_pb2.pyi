from google.rpc import status_pb2 as _status_pb2
from sonorant.tts.v1 import audio_pb2 as _audio_pb2
from sonorant.tts.v1 import dictionary_pb2 as _dictionary_pb2
from sonorant.tts.v1 import latency_pb2 as _latency_pb2
from sonorant.tts.v1 import voice_pb2 as _voice_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TextFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TEXT_FORMAT_UNSPECIFIED: _ClassVar[TextFormat]
    TEXT_FORMAT_PLAIN: _ClassVar[TextFormat]
    TEXT_FORMAT_MARKDOWN: _ClassVar[TextFormat]
    TEXT_FORMAT_SSML: _ClassVar[TextFormat]

class MarkdownPart(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MARKDOWN_PART_UNSPECIFIED: _ClassVar[MarkdownPart]
    MARKDOWN_PART_CODE: _ClassVar[MarkdownPart]
    MARKDOWN_PART_TABLE: _ClassVar[MarkdownPart]
    MARKDOWN_PART_LINK: _ClassVar[MarkdownPart]

class TimestampMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TIMESTAMP_MODE_UNSPECIFIED: _ClassVar[TimestampMode]
    TIMESTAMP_MODE_PROGRESS: _ClassVar[TimestampMode]
    TIMESTAMP_MODE_WORD: _ClassVar[TimestampMode]

class FinishReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINISH_REASON_UNSPECIFIED: _ClassVar[FinishReason]
    FINISH_REASON_COMPLETED: _ClassVar[FinishReason]
    FINISH_REASON_CANCELLED: _ClassVar[FinishReason]
    FINISH_REASON_FAILED: _ClassVar[FinishReason]
    FINISH_REASON_MAX_AUDIO: _ClassVar[FinishReason]
    FINISH_REASON_RUNAWAY: _ClassVar[FinishReason]

class Priority(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PRIORITY_UNSPECIFIED: _ClassVar[Priority]
    PRIORITY_INTERACTIVE: _ClassVar[Priority]
    PRIORITY_BATCH: _ClassVar[Priority]
TEXT_FORMAT_UNSPECIFIED: TextFormat
TEXT_FORMAT_PLAIN: TextFormat
TEXT_FORMAT_MARKDOWN: TextFormat
TEXT_FORMAT_SSML: TextFormat
MARKDOWN_PART_UNSPECIFIED: MarkdownPart
MARKDOWN_PART_CODE: MarkdownPart
MARKDOWN_PART_TABLE: MarkdownPart
MARKDOWN_PART_LINK: MarkdownPart
TIMESTAMP_MODE_UNSPECIFIED: TimestampMode
TIMESTAMP_MODE_PROGRESS: TimestampMode
TIMESTAMP_MODE_WORD: TimestampMode
FINISH_REASON_UNSPECIFIED: FinishReason
FINISH_REASON_COMPLETED: FinishReason
FINISH_REASON_CANCELLED: FinishReason
FINISH_REASON_FAILED: FinishReason
FINISH_REASON_MAX_AUDIO: FinishReason
FINISH_REASON_RUNAWAY: FinishReason
PRIORITY_UNSPECIFIED: Priority
PRIORITY_INTERACTIVE: Priority
PRIORITY_BATCH: Priority

class Sampling(_message.Message):
    __slots__ = ("temperature", "top_k", "top_p", "repetition_penalty", "seed", "do_sample", "subtalker_do_sample", "subtalker_temperature", "subtalker_top_k", "subtalker_top_p", "min_frames", "max_frames", "ignore_eos")
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    REPETITION_PENALTY_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    DO_SAMPLE_FIELD_NUMBER: _ClassVar[int]
    SUBTALKER_DO_SAMPLE_FIELD_NUMBER: _ClassVar[int]
    SUBTALKER_TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    SUBTALKER_TOP_K_FIELD_NUMBER: _ClassVar[int]
    SUBTALKER_TOP_P_FIELD_NUMBER: _ClassVar[int]
    MIN_FRAMES_FIELD_NUMBER: _ClassVar[int]
    MAX_FRAMES_FIELD_NUMBER: _ClassVar[int]
    IGNORE_EOS_FIELD_NUMBER: _ClassVar[int]
    temperature: float
    top_k: int
    top_p: float
    repetition_penalty: float
    seed: int
    do_sample: bool
    subtalker_do_sample: bool
    subtalker_temperature: float
    subtalker_top_k: int
    subtalker_top_p: float
    min_frames: int
    max_frames: int
    ignore_eos: bool
    def __init__(self, temperature: _Optional[float] = ..., top_k: _Optional[int] = ..., top_p: _Optional[float] = ..., repetition_penalty: _Optional[float] = ..., seed: _Optional[int] = ..., do_sample: bool = ..., subtalker_do_sample: bool = ..., subtalker_temperature: _Optional[float] = ..., subtalker_top_k: _Optional[int] = ..., subtalker_top_p: _Optional[float] = ..., min_frames: _Optional[int] = ..., max_frames: _Optional[int] = ..., ignore_eos: bool = ...) -> None: ...

class SynthesisConfig(_message.Message):
    __slots__ = ("voice", "language", "instructions", "audio", "sampling", "speed", "volume_gain_db", "normalize_text", "pronunciations", "max_audio_ms", "non_streaming_mode", "text_format", "leave_out", "dictionaries", "directions")
    class PronunciationsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    VOICE_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTIONS_FIELD_NUMBER: _ClassVar[int]
    AUDIO_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    SPEED_FIELD_NUMBER: _ClassVar[int]
    VOLUME_GAIN_DB_FIELD_NUMBER: _ClassVar[int]
    NORMALIZE_TEXT_FIELD_NUMBER: _ClassVar[int]
    PRONUNCIATIONS_FIELD_NUMBER: _ClassVar[int]
    MAX_AUDIO_MS_FIELD_NUMBER: _ClassVar[int]
    NON_STREAMING_MODE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FORMAT_FIELD_NUMBER: _ClassVar[int]
    LEAVE_OUT_FIELD_NUMBER: _ClassVar[int]
    DICTIONARIES_FIELD_NUMBER: _ClassVar[int]
    DIRECTIONS_FIELD_NUMBER: _ClassVar[int]
    voice: _voice_pb2.VoiceSelector
    language: str
    instructions: str
    audio: _audio_pb2.AudioFormat
    sampling: Sampling
    speed: float
    volume_gain_db: float
    normalize_text: bool
    pronunciations: _containers.ScalarMap[str, str]
    max_audio_ms: int
    non_streaming_mode: bool
    text_format: TextFormat
    leave_out: _containers.RepeatedScalarFieldContainer[MarkdownPart]
    dictionaries: _containers.RepeatedCompositeFieldContainer[_dictionary_pb2.DictionaryReference]
    directions: bool
    def __init__(self, voice: _Optional[_Union[_voice_pb2.VoiceSelector, _Mapping]] = ..., language: _Optional[str] = ..., instructions: _Optional[str] = ..., audio: _Optional[_Union[_audio_pb2.AudioFormat, _Mapping]] = ..., sampling: _Optional[_Union[Sampling, _Mapping]] = ..., speed: _Optional[float] = ..., volume_gain_db: _Optional[float] = ..., normalize_text: bool = ..., pronunciations: _Optional[_Mapping[str, str]] = ..., max_audio_ms: _Optional[int] = ..., non_streaming_mode: bool = ..., text_format: _Optional[_Union[TextFormat, str]] = ..., leave_out: _Optional[_Iterable[_Union[MarkdownPart, str]]] = ..., dictionaries: _Optional[_Iterable[_Union[_dictionary_pb2.DictionaryReference, _Mapping]]] = ..., directions: bool = ...) -> None: ...

class Mark(_message.Message):
    __slots__ = ("text", "text_start", "text_end", "start_ms", "end_ms", "estimated")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TEXT_START_FIELD_NUMBER: _ClassVar[int]
    TEXT_END_FIELD_NUMBER: _ClassVar[int]
    START_MS_FIELD_NUMBER: _ClassVar[int]
    END_MS_FIELD_NUMBER: _ClassVar[int]
    ESTIMATED_FIELD_NUMBER: _ClassVar[int]
    text: str
    text_start: int
    text_end: int
    start_ms: int
    end_ms: int
    estimated: bool
    def __init__(self, text: _Optional[str] = ..., text_start: _Optional[int] = ..., text_end: _Optional[int] = ..., start_ms: _Optional[int] = ..., end_ms: _Optional[int] = ..., estimated: bool = ...) -> None: ...

class Marks(_message.Message):
    __slots__ = ("marks",)
    MARKS_FIELD_NUMBER: _ClassVar[int]
    marks: _containers.RepeatedCompositeFieldContainer[Mark]
    def __init__(self, marks: _Optional[_Iterable[_Union[Mark, _Mapping]]] = ...) -> None: ...

class Warning(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class UtteranceStarted(_message.Message):
    __slots__ = ("audio", "voice_id", "seed", "replay", "checkpoint", "from_phrase_cache", "codebooks", "code_bits", "max_silence_ms")
    AUDIO_FIELD_NUMBER: _ClassVar[int]
    VOICE_ID_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    REPLAY_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    FROM_PHRASE_CACHE_FIELD_NUMBER: _ClassVar[int]
    CODEBOOKS_FIELD_NUMBER: _ClassVar[int]
    CODE_BITS_FIELD_NUMBER: _ClassVar[int]
    MAX_SILENCE_MS_FIELD_NUMBER: _ClassVar[int]
    audio: _audio_pb2.AudioFormat
    voice_id: str
    seed: int
    replay: SynthesisConfig
    checkpoint: str
    from_phrase_cache: bool
    codebooks: int
    code_bits: int
    max_silence_ms: int
    def __init__(self, audio: _Optional[_Union[_audio_pb2.AudioFormat, _Mapping]] = ..., voice_id: _Optional[str] = ..., seed: _Optional[int] = ..., replay: _Optional[_Union[SynthesisConfig, _Mapping]] = ..., checkpoint: _Optional[str] = ..., from_phrase_cache: bool = ..., codebooks: _Optional[int] = ..., code_bits: _Optional[int] = ..., max_silence_ms: _Optional[int] = ...) -> None: ...

class SynthesisStats(_message.Message):
    __slots__ = ("input_chars", "audio_ms", "sent_ms", "played_ms", "spoken_chars", "queue_ms", "first_audio_ms", "generation_ms", "codec_frames", "real_time_factor", "first_audio_budget", "heals", "dropped_frames", "kept_frames", "missed_ends")
    INPUT_CHARS_FIELD_NUMBER: _ClassVar[int]
    AUDIO_MS_FIELD_NUMBER: _ClassVar[int]
    SENT_MS_FIELD_NUMBER: _ClassVar[int]
    PLAYED_MS_FIELD_NUMBER: _ClassVar[int]
    SPOKEN_CHARS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_MS_FIELD_NUMBER: _ClassVar[int]
    FIRST_AUDIO_MS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_MS_FIELD_NUMBER: _ClassVar[int]
    CODEC_FRAMES_FIELD_NUMBER: _ClassVar[int]
    REAL_TIME_FACTOR_FIELD_NUMBER: _ClassVar[int]
    FIRST_AUDIO_BUDGET_FIELD_NUMBER: _ClassVar[int]
    HEALS_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FRAMES_FIELD_NUMBER: _ClassVar[int]
    KEPT_FRAMES_FIELD_NUMBER: _ClassVar[int]
    MISSED_ENDS_FIELD_NUMBER: _ClassVar[int]
    input_chars: int
    audio_ms: int
    sent_ms: int
    played_ms: int
    spoken_chars: int
    queue_ms: int
    first_audio_ms: int
    generation_ms: int
    codec_frames: int
    real_time_factor: float
    first_audio_budget: _latency_pb2.LatencyBudget
    heals: int
    dropped_frames: int
    kept_frames: int
    missed_ends: int
    def __init__(self, input_chars: _Optional[int] = ..., audio_ms: _Optional[int] = ..., sent_ms: _Optional[int] = ..., played_ms: _Optional[int] = ..., spoken_chars: _Optional[int] = ..., queue_ms: _Optional[int] = ..., first_audio_ms: _Optional[int] = ..., generation_ms: _Optional[int] = ..., codec_frames: _Optional[int] = ..., real_time_factor: _Optional[float] = ..., first_audio_budget: _Optional[_Union[_latency_pb2.LatencyBudget, _Mapping]] = ..., heals: _Optional[int] = ..., dropped_frames: _Optional[int] = ..., kept_frames: _Optional[int] = ..., missed_ends: _Optional[int] = ...) -> None: ...

class UtteranceDone(_message.Message):
    __slots__ = ("reason", "error", "stats", "usage", "warnings")
    REASON_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    reason: FinishReason
    error: _status_pb2.Status
    stats: SynthesisStats
    usage: Usage
    warnings: _containers.RepeatedCompositeFieldContainer[Warning]
    def __init__(self, reason: _Optional[_Union[FinishReason, str]] = ..., error: _Optional[_Union[_status_pb2.Status, _Mapping]] = ..., stats: _Optional[_Union[SynthesisStats, _Mapping]] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., warnings: _Optional[_Iterable[_Union[Warning, _Mapping]]] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("input_chars", "audio_ms", "clones")
    INPUT_CHARS_FIELD_NUMBER: _ClassVar[int]
    AUDIO_MS_FIELD_NUMBER: _ClassVar[int]
    CLONES_FIELD_NUMBER: _ClassVar[int]
    input_chars: int
    audio_ms: int
    clones: int
    def __init__(self, input_chars: _Optional[int] = ..., audio_ms: _Optional[int] = ..., clones: _Optional[int] = ...) -> None: ...

class Scheduling(_message.Message):
    __slots__ = ("priority", "max_wait_ms")
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    priority: Priority
    max_wait_ms: int
    def __init__(self, priority: _Optional[_Union[Priority, str]] = ..., max_wait_ms: _Optional[int] = ...) -> None: ...

class Queued(_message.Message):
    __slots__ = ("num_ahead", "expected_wait_ms")
    NUM_AHEAD_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    num_ahead: int
    expected_wait_ms: int
    def __init__(self, num_ahead: _Optional[int] = ..., expected_wait_ms: _Optional[int] = ...) -> None: ...
