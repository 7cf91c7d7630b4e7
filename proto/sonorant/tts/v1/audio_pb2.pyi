from sonorant.tts.v1 import latency_pb2 as _latency_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AudioEncoding(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    AUDIO_ENCODING_UNSPECIFIED: _ClassVar[AudioEncoding]
    AUDIO_ENCODING_PCM_S16LE: _ClassVar[AudioEncoding]
    AUDIO_ENCODING_WAV: _ClassVar[AudioEncoding]
    AUDIO_ENCODING_OGG_OPUS: _ClassVar[AudioEncoding]
    AUDIO_ENCODING_OPUS: _ClassVar[AudioEncoding]
    AUDIO_ENCODING_MULAW: _ClassVar[AudioEncoding]
    AUDIO_ENCODING_ALAW: _ClassVar[AudioEncoding]
    AUDIO_ENCODING_FLAC: _ClassVar[AudioEncoding]
    AUDIO_ENCODING_CODES: _ClassVar[AudioEncoding]
AUDIO_ENCODING_UNSPECIFIED: AudioEncoding
AUDIO_ENCODING_PCM_S16LE: AudioEncoding
AUDIO_ENCODING_WAV: AudioEncoding
AUDIO_ENCODING_OGG_OPUS: AudioEncoding
AUDIO_ENCODING_OPUS: AudioEncoding
AUDIO_ENCODING_MULAW: AudioEncoding
AUDIO_ENCODING_ALAW: AudioEncoding
AUDIO_ENCODING_FLAC: AudioEncoding
AUDIO_ENCODING_CODES: AudioEncoding

class AudioFormat(_message.Message):
    __slots__ = ("encoding", "sample_rate_hz", "frame_duration_ms", "bitrate_bps")
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_RATE_HZ_FIELD_NUMBER: _ClassVar[int]
    FRAME_DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    BITRATE_BPS_FIELD_NUMBER: _ClassVar[int]
    encoding: AudioEncoding
    sample_rate_hz: int
    frame_duration_ms: int
    bitrate_bps: int
    def __init__(self, encoding: _Optional[_Union[AudioEncoding, str]] = ..., sample_rate_hz: _Optional[int] = ..., frame_duration_ms: _Optional[int] = ..., bitrate_bps: _Optional[int] = ...) -> None: ...

class AudioChunk(_message.Message):
    __slots__ = ("data", "start_ms", "num_samples", "flush_id", "budget", "codes", "receipt")
    DATA_FIELD_NUMBER: _ClassVar[int]
    START_MS_FIELD_NUMBER: _ClassVar[int]
    NUM_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    FLUSH_ID_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    CODES_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    start_ms: int
    num_samples: int
    flush_id: int
    budget: _latency_pb2.LatencyBudget
    codes: _containers.RepeatedCompositeFieldContainer[SegmentCodes]
    receipt: Receipt
    def __init__(self, data: _Optional[bytes] = ..., start_ms: _Optional[int] = ..., num_samples: _Optional[int] = ..., flush_id: _Optional[int] = ..., budget: _Optional[_Union[_latency_pb2.LatencyBudget, _Mapping]] = ..., codes: _Optional[_Iterable[_Union[SegmentCodes, _Mapping]]] = ..., receipt: _Optional[_Union[Receipt, _Mapping]] = ...) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("chars", "seal")
    CHARS_FIELD_NUMBER: _ClassVar[int]
    SEAL_FIELD_NUMBER: _ClassVar[int]
    chars: int
    seal: bytes
    def __init__(self, chars: _Optional[int] = ..., seal: _Optional[bytes] = ...) -> None: ...

class SegmentCodes(_message.Message):
    __slots__ = ("segment", "codes", "complete", "offset", "draw", "packed", "unsent_samples")
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    CODES_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DRAW_FIELD_NUMBER: _ClassVar[int]
    PACKED_FIELD_NUMBER: _ClassVar[int]
    UNSENT_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    segment: int
    codes: bytes
    complete: bool
    offset: int
    draw: int
    packed: bytes
    unsent_samples: int
    def __init__(self, segment: _Optional[int] = ..., codes: _Optional[bytes] = ..., complete: bool = ..., offset: _Optional[int] = ..., draw: _Optional[int] = ..., packed: _Optional[bytes] = ..., unsent_samples: _Optional[int] = ...) -> None: ...
