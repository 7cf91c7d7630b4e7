"""The records of the three rings, as values. `encode`/`decode` turn them into bytes and back.

Ring A, service -> talker:    OpenStream (PushText | GrantCredit)* [EndText] [CancelStream]; Shutdown
Ring B, talker -> code2wav:   BeginStream (row of FrameBatch | FlushStream)* EndStream; Shutdown
Ring C, code2wav -> service:  (row of PcmBatch)* EndStream

Per stream the order above holds on every ring, and each OpenStream is answered by exactly one EndStream on ring C.
A stream that ends before it got a slot has an EndStream and nothing else on rings B and C.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from engine.types import Float32Array, Int16Array, PromptPlan, SamplingParams, StreamEnd

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class OpenStream:
    stream_id: int  # never reused
    plan: PromptPlan
    sampling: SamplingParams
    credit_frames: int
    x_vector: Float32Array | None = None  # [hidden]
    reference_codes: Int16Array | None = None  # [frames, codebooks]


@dataclass(frozen=True, slots=True)
class PushText:
    stream_id: int
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EndText:
    stream_id: int


@dataclass(frozen=True, slots=True)
class GrantCredit:
    stream_id: int
    num_frames: int


@dataclass(frozen=True, slots=True)
class CancelStream:
    stream_id: int


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Finish nothing, release everything, exit; passed on down the path."""


@dataclass(frozen=True, slots=True)
class BeginStream:
    stream_id: int
    prime_codes: Int16Array | None = None  # [frames, codebooks] of the reference: decoded for their state, never heard


@dataclass(frozen=True, slots=True)
class FrameBatch:
    """The frames of one talker step, one row per stream."""

    stream_ids: Int64Array  # [rows]
    frame_indices: Int32Array  # [rows], from 0
    codes: Int16Array  # [rows, codebooks]


@dataclass(frozen=True, slots=True)
class FlushStream:
    """The talker will make no frame for this stream for now (starved or blocked): decode what is there."""

    stream_id: int


@dataclass(frozen=True, slots=True)
class EndStream:
    stream_id: int
    end: StreamEnd


@dataclass(frozen=True, slots=True)
class PcmBatch:
    """The audio of one Code2Wav call, one row per stream, `num_frames` codec frames each."""

    stream_ids: Int64Array  # [rows]
    first_frames: Int32Array  # [rows]
    num_frames: int
    samples: Int16Array | Float32Array  # [rows, num_frames * frame_samples]; int16 on the ring


Command: TypeAlias = OpenStream | PushText | EndText | GrantCredit | CancelStream | Shutdown
FrameRecord: TypeAlias = BeginStream | FrameBatch | FlushStream | EndStream | Shutdown
PcmRecord: TypeAlias = PcmBatch | EndStream
