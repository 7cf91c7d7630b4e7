from sonorant.tts.v1 import dictionary_pb2 as _dictionary_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListDictionariesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListDictionariesResponse(_message.Message):
    __slots__ = ("dictionaries",)
    DICTIONARIES_FIELD_NUMBER: _ClassVar[int]
    dictionaries: _containers.RepeatedCompositeFieldContainer[_dictionary_pb2.Dictionary]
    def __init__(self, dictionaries: _Optional[_Iterable[_Union[_dictionary_pb2.Dictionary, _Mapping]]] = ...) -> None: ...

class GetDictionaryRequest(_message.Message):
    __slots__ = ("dictionary_id", "version")
    DICTIONARY_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    dictionary_id: str
    version: int
    def __init__(self, dictionary_id: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class GetDictionaryResponse(_message.Message):
    __slots__ = ("dictionary",)
    DICTIONARY_FIELD_NUMBER: _ClassVar[int]
    dictionary: _dictionary_pb2.Dictionary
    def __init__(self, dictionary: _Optional[_Union[_dictionary_pb2.Dictionary, _Mapping]] = ...) -> None: ...

class PutDictionaryRequest(_message.Message):
    __slots__ = ("dictionary_id", "pronunciations")
    class PronunciationsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    DICTIONARY_ID_FIELD_NUMBER: _ClassVar[int]
    PRONUNCIATIONS_FIELD_NUMBER: _ClassVar[int]
    dictionary_id: str
    pronunciations: _containers.ScalarMap[str, str]
    def __init__(self, dictionary_id: _Optional[str] = ..., pronunciations: _Optional[_Mapping[str, str]] = ...) -> None: ...

class PutDictionaryResponse(_message.Message):
    __slots__ = ("dictionary",)
    DICTIONARY_FIELD_NUMBER: _ClassVar[int]
    dictionary: _dictionary_pb2.Dictionary
    def __init__(self, dictionary: _Optional[_Union[_dictionary_pb2.Dictionary, _Mapping]] = ...) -> None: ...

class DeleteDictionaryRequest(_message.Message):
    __slots__ = ("dictionary_id", "allow_missing")
    DICTIONARY_ID_FIELD_NUMBER: _ClassVar[int]
    ALLOW_MISSING_FIELD_NUMBER: _ClassVar[int]
    dictionary_id: str
    allow_missing: bool
    def __init__(self, dictionary_id: _Optional[str] = ..., allow_missing: bool = ...) -> None: ...

class DeleteDictionaryResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
