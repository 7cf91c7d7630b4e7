import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Dictionary(_message.Message):
    __slots__ = ("dictionary_id", "version", "pronunciations", "num_phrases", "create_time", "versions")
    class PronunciationsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    DICTIONARY_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PRONUNCIATIONS_FIELD_NUMBER: _ClassVar[int]
    NUM_PHRASES_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    dictionary_id: str
    version: int
    pronunciations: _containers.ScalarMap[str, str]
    num_phrases: int
    create_time: _timestamp_pb2.Timestamp
    versions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, dictionary_id: _Optional[str] = ..., version: _Optional[int] = ..., pronunciations: _Optional[_Mapping[str, str]] = ..., num_phrases: _Optional[int] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., versions: _Optional[_Iterable[int]] = ...) -> None: ...

class DictionaryReference(_message.Message):
    __slots__ = ("dictionary_id", "version")
    DICTIONARY_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    dictionary_id: str
    version: int
    def __init__(self, dictionary_id: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...
