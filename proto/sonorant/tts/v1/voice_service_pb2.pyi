from sonorant.tts.v1 import voice_pb2 as _voice_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListVoicesRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "language", "kind", "labels")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    language: str
    kind: _voice_pb2.VoiceKind
    labels: _containers.ScalarMap[str, str]
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., language: _Optional[str] = ..., kind: _Optional[_Union[_voice_pb2.VoiceKind, str]] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ListVoicesResponse(_message.Message):
    __slots__ = ("voices", "next_page_token")
    VOICES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    voices: _containers.RepeatedCompositeFieldContainer[_voice_pb2.Voice]
    next_page_token: str
    def __init__(self, voices: _Optional[_Iterable[_Union[_voice_pb2.Voice, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetVoiceRequest(_message.Message):
    __slots__ = ("voice_id",)
    VOICE_ID_FIELD_NUMBER: _ClassVar[int]
    voice_id: str
    def __init__(self, voice_id: _Optional[str] = ...) -> None: ...

class GetVoiceResponse(_message.Message):
    __slots__ = ("voice",)
    VOICE_FIELD_NUMBER: _ClassVar[int]
    voice: _voice_pb2.Voice
    def __init__(self, voice: _Optional[_Union[_voice_pb2.Voice, _Mapping]] = ...) -> None: ...

class CreateVoiceRequest(_message.Message):
    __slots__ = ("voice_id", "voice", "reference", "design", "speaker_embedding", "mix", "consent", "ttl_seconds", "validate_only", "request_id")
    VOICE_ID_FIELD_NUMBER: _ClassVar[int]
    VOICE_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    DESIGN_FIELD_NUMBER: _ClassVar[int]
    SPEAKER_EMBEDDING_FIELD_NUMBER: _ClassVar[int]
    MIX_FIELD_NUMBER: _ClassVar[int]
    CONSENT_FIELD_NUMBER: _ClassVar[int]
    TTL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    voice_id: str
    voice: _voice_pb2.Voice
    reference: _voice_pb2.ReferenceAudio
    design: str
    speaker_embedding: _voice_pb2.SpeakerEmbedding
    mix: _voice_pb2.VoiceMix
    consent: str
    ttl_seconds: int
    validate_only: bool
    request_id: str
    def __init__(self, voice_id: _Optional[str] = ..., voice: _Optional[_Union[_voice_pb2.Voice, _Mapping]] = ..., reference: _Optional[_Union[_voice_pb2.ReferenceAudio, _Mapping]] = ..., design: _Optional[str] = ..., speaker_embedding: _Optional[_Union[_voice_pb2.SpeakerEmbedding, _Mapping]] = ..., mix: _Optional[_Union[_voice_pb2.VoiceMix, _Mapping]] = ..., consent: _Optional[str] = ..., ttl_seconds: _Optional[int] = ..., validate_only: bool = ..., request_id: _Optional[str] = ...) -> None: ...

class CreateVoiceResponse(_message.Message):
    __slots__ = ("voice",)
    VOICE_FIELD_NUMBER: _ClassVar[int]
    voice: _voice_pb2.Voice
    def __init__(self, voice: _Optional[_Union[_voice_pb2.Voice, _Mapping]] = ...) -> None: ...

class UploadVoiceRequest(_message.Message):
    __slots__ = ("create", "audio")
    CREATE_FIELD_NUMBER: _ClassVar[int]
    AUDIO_FIELD_NUMBER: _ClassVar[int]
    create: CreateVoiceRequest
    audio: bytes
    def __init__(self, create: _Optional[_Union[CreateVoiceRequest, _Mapping]] = ..., audio: _Optional[bytes] = ...) -> None: ...

class UploadVoiceResponse(_message.Message):
    __slots__ = ("voice",)
    VOICE_FIELD_NUMBER: _ClassVar[int]
    voice: _voice_pb2.Voice
    def __init__(self, voice: _Optional[_Union[_voice_pb2.Voice, _Mapping]] = ...) -> None: ...

class DeleteVoiceRequest(_message.Message):
    __slots__ = ("voice_id", "allow_missing")
    VOICE_ID_FIELD_NUMBER: _ClassVar[int]
    ALLOW_MISSING_FIELD_NUMBER: _ClassVar[int]
    voice_id: str
    allow_missing: bool
    def __init__(self, voice_id: _Optional[str] = ..., allow_missing: bool = ...) -> None: ...

class DeleteVoiceResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ExportVoiceRequest(_message.Message):
    __slots__ = ("voice_id",)
    VOICE_ID_FIELD_NUMBER: _ClassVar[int]
    voice_id: str
    def __init__(self, voice_id: _Optional[str] = ...) -> None: ...

class ExportVoiceResponse(_message.Message):
    __slots__ = ("voice_file",)
    VOICE_FILE_FIELD_NUMBER: _ClassVar[int]
    voice_file: bytes
    def __init__(self, voice_file: _Optional[bytes] = ...) -> None: ...

class ImportVoiceRequest(_message.Message):
    __slots__ = ("voice_file", "voice_id", "ttl_seconds", "validate_only", "request_id")
    VOICE_FILE_FIELD_NUMBER: _ClassVar[int]
    VOICE_ID_FIELD_NUMBER: _ClassVar[int]
    TTL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    voice_file: bytes
    voice_id: str
    ttl_seconds: int
    validate_only: bool
    request_id: str
    def __init__(self, voice_file: _Optional[bytes] = ..., voice_id: _Optional[str] = ..., ttl_seconds: _Optional[int] = ..., validate_only: bool = ..., request_id: _Optional[str] = ...) -> None: ...

class ImportVoiceResponse(_message.Message):
    __slots__ = ("voice",)
    VOICE_FIELD_NUMBER: _ClassVar[int]
    voice: _voice_pb2.Voice
    def __init__(self, voice: _Optional[_Union[_voice_pb2.Voice, _Mapping]] = ...) -> None: ...
