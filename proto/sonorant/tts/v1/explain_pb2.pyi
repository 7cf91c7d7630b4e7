from google.rpc import status_pb2 as _status_pb2
from sonorant.tts.v1 import audio_pb2 as _audio_pb2
from sonorant.tts.v1 import synthesis_pb2 as _synthesis_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ExplainRequest(_message.Message):
    __slots__ = ("config", "text")
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    config: _synthesis_pb2.SynthesisConfig
    text: str
    def __init__(self, config: _Optional[_Union[_synthesis_pb2.SynthesisConfig, _Mapping]] = ..., text: _Optional[str] = ...) -> None: ...

class TextToken(_message.Message):
    __slots__ = ("id", "text")
    ID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    id: int
    text: str
    def __init__(self, id: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class ExplainedSegment(_message.Message):
    __slots__ = ("text_start", "text_end", "num_tokens", "estimated_frames")
    TEXT_START_FIELD_NUMBER: _ClassVar[int]
    TEXT_END_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ESTIMATED_FRAMES_FIELD_NUMBER: _ClassVar[int]
    text_start: int
    text_end: int
    num_tokens: int
    estimated_frames: int
    def __init__(self, text_start: _Optional[int] = ..., text_end: _Optional[int] = ..., num_tokens: _Optional[int] = ..., estimated_frames: _Optional[int] = ...) -> None: ...

class CharacterChange(_message.Message):
    __slots__ = ("text_start", "text_end", "written", "given")
    TEXT_START_FIELD_NUMBER: _ClassVar[int]
    TEXT_END_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_FIELD_NUMBER: _ClassVar[int]
    GIVEN_FIELD_NUMBER: _ClassVar[int]
    text_start: int
    text_end: int
    written: str
    given: str
    def __init__(self, text_start: _Optional[int] = ..., text_end: _Optional[int] = ..., written: _Optional[str] = ..., given: _Optional[str] = ...) -> None: ...

class PromptRow(_message.Message):
    __slots__ = ("text", "codec")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    CODEC_FIELD_NUMBER: _ClassVar[int]
    text: str
    codec: str
    def __init__(self, text: _Optional[str] = ..., codec: _Optional[str] = ...) -> None: ...

class Limit(_message.Message):
    __slots__ = ("name", "value", "limit")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: int
    limit: int
    def __init__(self, name: _Optional[str] = ..., value: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class ExplainResponse(_message.Message):
    __slots__ = ("errors", "limits", "warnings", "model", "voice_id", "language", "non_streaming_mode", "audio", "speed", "volume_gain_db", "sampling", "text", "tokens", "prompt", "trailing", "estimated_frames", "estimated_audio_ms", "changes", "segments")
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VOICE_ID_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    NON_STREAMING_MODE_FIELD_NUMBER: _ClassVar[int]
    AUDIO_FIELD_NUMBER: _ClassVar[int]
    SPEED_FIELD_NUMBER: _ClassVar[int]
    VOLUME_GAIN_DB_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    TRAILING_FIELD_NUMBER: _ClassVar[int]
    ESTIMATED_FRAMES_FIELD_NUMBER: _ClassVar[int]
    ESTIMATED_AUDIO_MS_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    errors: _containers.RepeatedCompositeFieldContainer[_status_pb2.Status]
    limits: _containers.RepeatedCompositeFieldContainer[Limit]
    warnings: _containers.RepeatedCompositeFieldContainer[_synthesis_pb2.Warning]
    model: str
    voice_id: str
    language: str
    non_streaming_mode: bool
    audio: _audio_pb2.AudioFormat
    speed: float
    volume_gain_db: float
    sampling: _synthesis_pb2.Sampling
    text: str
    tokens: _containers.RepeatedCompositeFieldContainer[TextToken]
    prompt: _containers.RepeatedCompositeFieldContainer[PromptRow]
    trailing: _containers.RepeatedScalarFieldContainer[str]
    estimated_frames: int
    estimated_audio_ms: int
    changes: _containers.RepeatedCompositeFieldContainer[CharacterChange]
    segments: _containers.RepeatedCompositeFieldContainer[ExplainedSegment]
    def __init__(self, errors: _Optional[_Iterable[_Union[_status_pb2.Status, _Mapping]]] = ..., limits: _Optional[_Iterable[_Union[Limit, _Mapping]]] = ..., warnings: _Optional[_Iterable[_Union[_synthesis_pb2.Warning, _Mapping]]] = ..., model: _Optional[str] = ..., voice_id: _Optional[str] = ..., language: _Optional[str] = ..., non_streaming_mode: bool = ..., audio: _Optional[_Union[_audio_pb2.AudioFormat, _Mapping]] = ..., speed: _Optional[float] = ..., volume_gain_db: _Optional[float] = ..., sampling: _Optional[_Union[_synthesis_pb2.Sampling, _Mapping]] = ..., text: _Optional[str] = ..., tokens: _Optional[_Iterable[_Union[TextToken, _Mapping]]] = ..., prompt: _Optional[_Iterable[_Union[PromptRow, _Mapping]]] = ..., trailing: _Optional[_Iterable[str]] = ..., estimated_frames: _Optional[int] = ..., estimated_audio_ms: _Optional[int] = ..., changes: _Optional[_Iterable[_Union[CharacterChange, _Mapping]]] = ..., segments: _Optional[_Iterable[_Union[ExplainedSegment, _Mapping]]] = ...) -> None: ...
