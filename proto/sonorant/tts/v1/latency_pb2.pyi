from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class LatencyBudget(_message.Message):
    __slots__ = ("opening_ms", "recording_wait_ms", "recording_decode_ms", "recording_encode_ms", "text_ms", "queue_ms", "prefill_ms", "step_ms", "frames_ring_ms", "codec_wait_ms", "codec_ms", "pcm_ring_ms", "encode_ms", "hold_ms")
    OPENING_MS_FIELD_NUMBER: _ClassVar[int]
    RECORDING_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    RECORDING_DECODE_MS_FIELD_NUMBER: _ClassVar[int]
    RECORDING_ENCODE_MS_FIELD_NUMBER: _ClassVar[int]
    TEXT_MS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_MS_FIELD_NUMBER: _ClassVar[int]
    PREFILL_MS_FIELD_NUMBER: _ClassVar[int]
    STEP_MS_FIELD_NUMBER: _ClassVar[int]
    FRAMES_RING_MS_FIELD_NUMBER: _ClassVar[int]
    CODEC_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    CODEC_MS_FIELD_NUMBER: _ClassVar[int]
    PCM_RING_MS_FIELD_NUMBER: _ClassVar[int]
    ENCODE_MS_FIELD_NUMBER: _ClassVar[int]
    HOLD_MS_FIELD_NUMBER: _ClassVar[int]
    opening_ms: float
    recording_wait_ms: float
    recording_decode_ms: float
    recording_encode_ms: float
    text_ms: float
    queue_ms: float
    prefill_ms: float
    step_ms: float
    frames_ring_ms: float
    codec_wait_ms: float
    codec_ms: float
    pcm_ring_ms: float
    encode_ms: float
    hold_ms: float
    def __init__(self, opening_ms: _Optional[float] = ..., recording_wait_ms: _Optional[float] = ..., recording_decode_ms: _Optional[float] = ..., recording_encode_ms: _Optional[float] = ..., text_ms: _Optional[float] = ..., queue_ms: _Optional[float] = ..., prefill_ms: _Optional[float] = ..., step_ms: _Optional[float] = ..., frames_ring_ms: _Optional[float] = ..., codec_wait_ms: _Optional[float] = ..., codec_ms: _Optional[float] = ..., pcm_ring_ms: _Optional[float] = ..., encode_ms: _Optional[float] = ..., hold_ms: _Optional[float] = ...) -> None: ...
