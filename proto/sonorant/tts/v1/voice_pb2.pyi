import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MixMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MIX_METHOD_UNSPECIFIED: _ClassVar[MixMethod]
    MIX_METHOD_LINEAR: _ClassVar[MixMethod]
    MIX_METHOD_SPHERICAL: _ClassVar[MixMethod]

class VoiceKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VOICE_KIND_UNSPECIFIED: _ClassVar[VoiceKind]
    VOICE_KIND_PRESET: _ClassVar[VoiceKind]
    VOICE_KIND_CLONED: _ClassVar[VoiceKind]
    VOICE_KIND_DESIGNED: _ClassVar[VoiceKind]
    VOICE_KIND_EMBEDDED: _ClassVar[VoiceKind]
    VOICE_KIND_MIXED: _ClassVar[VoiceKind]
MIX_METHOD_UNSPECIFIED: MixMethod
MIX_METHOD_LINEAR: MixMethod
MIX_METHOD_SPHERICAL: MixMethod
VOICE_KIND_UNSPECIFIED: VoiceKind
VOICE_KIND_PRESET: VoiceKind
VOICE_KIND_CLONED: VoiceKind
VOICE_KIND_DESIGNED: VoiceKind
VOICE_KIND_EMBEDDED: VoiceKind
VOICE_KIND_MIXED: VoiceKind

class ReferenceAudio(_message.Message):
    __slots__ = ("audio", "transcript")
    AUDIO_FIELD_NUMBER: _ClassVar[int]
    TRANSCRIPT_FIELD_NUMBER: _ClassVar[int]
    audio: bytes
    transcript: str
    def __init__(self, audio: _Optional[bytes] = ..., transcript: _Optional[str] = ...) -> None: ...

class SpeakerEmbedding(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, values: _Optional[_Iterable[float]] = ...) -> None: ...

class WeightedVoice(_message.Message):
    __slots__ = ("voice_id", "speaker_embedding", "weight")
    VOICE_ID_FIELD_NUMBER: _ClassVar[int]
    SPEAKER_EMBEDDING_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    voice_id: str
    speaker_embedding: SpeakerEmbedding
    weight: float
    def __init__(self, voice_id: _Optional[str] = ..., speaker_embedding: _Optional[_Union[SpeakerEmbedding, _Mapping]] = ..., weight: _Optional[float] = ...) -> None: ...

class VoiceMix(_message.Message):
    __slots__ = ("voices", "method")
    VOICES_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    voices: _containers.RepeatedCompositeFieldContainer[WeightedVoice]
    method: MixMethod
    def __init__(self, voices: _Optional[_Iterable[_Union[WeightedVoice, _Mapping]]] = ..., method: _Optional[_Union[MixMethod, str]] = ...) -> None: ...

class VoiceSelector(_message.Message):
    __slots__ = ("voice_id", "reference", "design", "speaker_embedding", "mix")
    VOICE_ID_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    DESIGN_FIELD_NUMBER: _ClassVar[int]
    SPEAKER_EMBEDDING_FIELD_NUMBER: _ClassVar[int]
    MIX_FIELD_NUMBER: _ClassVar[int]
    voice_id: str
    reference: ReferenceAudio
    design: str
    speaker_embedding: SpeakerEmbedding
    mix: VoiceMix
    def __init__(self, voice_id: _Optional[str] = ..., reference: _Optional[_Union[ReferenceAudio, _Mapping]] = ..., design: _Optional[str] = ..., speaker_embedding: _Optional[_Union[SpeakerEmbedding, _Mapping]] = ..., mix: _Optional[_Union[VoiceMix, _Mapping]] = ...) -> None: ...

class Voice(_message.Message):
    __slots__ = ("voice_id", "kind", "display_name", "description", "languages", "labels", "create_time", "expire_time", "reference_audio_ms", "model", "consent", "transcript", "design", "preview_text")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    VOICE_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    LANGUAGES_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_AUDIO_MS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CONSENT_FIELD_NUMBER: _ClassVar[int]
    TRANSCRIPT_FIELD_NUMBER: _ClassVar[int]
    DESIGN_FIELD_NUMBER: _ClassVar[int]
    PREVIEW_TEXT_FIELD_NUMBER: _ClassVar[int]
    voice_id: str
    kind: VoiceKind
    display_name: str
    description: str
    languages: _containers.RepeatedScalarFieldContainer[str]
    labels: _containers.ScalarMap[str, str]
    create_time: _timestamp_pb2.Timestamp
    expire_time: _timestamp_pb2.Timestamp
    reference_audio_ms: int
    model: str
    consent: str
    transcript: str
    design: str
    preview_text: str
    def __init__(self, voice_id: _Optional[str] = ..., kind: _Optional[_Union[VoiceKind, str]] = ..., display_name: _Optional[str] = ..., description: _Optional[str] = ..., languages: _Optional[_Iterable[str]] = ..., labels: _Optional[_Mapping[str, str]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., reference_audio_ms: _Optional[int] = ..., model: _Optional[str] = ..., consent: _Optional[str] = ..., transcript: _Optional[str] = ..., design: _Optional[str] = ..., preview_text: _Optional[str] = ...) -> None: ...
