"""The records of the three rings, as values. `encode`/`decode` turn them into bytes and back.

Ring A, service -> talker:    OpenStream (PushText | GrantCredit)* [EndText] [CancelStream]; Shutdown
                              for stored codes the records of ring B, which the talker passes on
Ring B, talker -> code2wav:   BeginStream (row of FrameBatch | row of TextPositions | FlushStream)* EndStream; Shutdown
                              first of all a FrameBatch of SAMPLE_STREAM, if Code2Wav has to choose its number format
Ring C, code2wav -> service:  [FirstChunk (row of PcmBatch | SilentStream)+] EndStream
                              rows of TextPositions anywhere before EndStream

The records of each stream keep this order on every ring, and each OpenStream is answered by exactly one EndStream on
ring C. A stream that ends before it gets a slot has an EndStream and nothing else on rings B and C.

Several server processes may share the workers. Each has a ring A and a ring C of its own. When a server process
has died, EndServer is sent in its place on ring A: all its streams end, and then EndServer comes back on its ring C.
"""

import struct
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from sonorant.engine.ipc.opening import OPEN, Buffer, opening, opening_bytes, raw
from sonorant.engine.ipc.opening import OpenStream as OpenStream
from sonorant.engine.types import (
    FinishReason,
    Float32Array,
    Int16Array,
    Int32Array,
    Int64Array,
    StreamBudget,
    StreamEnd,
)

SAMPLE_STREAM = -1  # the id of test speech that is decoded for measuring and never heard; one row per frame


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
    """Finish nothing, release everything, exit. The talker passes it on to Code2Wav."""


@dataclass(frozen=True, slots=True)
class EndServer:
    """End all streams of this server process. Passed on from ring to ring; nothing of it follows on any of them."""

    server: int


@dataclass(frozen=True, slots=True)
class BeginStream:
    stream_id: int
    opened_s: float
    started_s: float  # when it got its slot
    past_codes: Int16Array | None = None  # [frames, codebooks], decoded only for the state they leave, never heard
    first_frame: int = 0  # index of the next frame; the last `first_frame` past frames are the stream's own
    is_stored: bool = False  # its frames are stored codes, which come from the service
    is_background: bool = False


@dataclass(frozen=True, slots=True)
class FrameBatch:
    """The frames of one talker step, one row per stream."""

    stream_ids: Int64Array  # [rows]
    frame_indices: Int32Array  # [rows], from the stream's first frame on
    codes: Int16Array  # [rows, codebooks]
    began_s: float  # when the step began
    ended_s: float


@dataclass(frozen=True, slots=True)
class TextPositions:
    """How far streams are in their texts, one row per stream. Code2Wav passes it on before the frames' audio."""

    stream_ids: Int64Array  # [rows]
    frame_indices: Int32Array  # [rows]
    positions: Float32Array  # [rows], in text tokens, at the middle of the frame: token i begins at i


@dataclass(frozen=True, slots=True)
class FlushStream:
    """The talker makes no more frames of this stream for now (starved or blocked): decode those that are there."""

    stream_id: int
    is_blocked: bool = False  # it lacks only credit, so the service has audio that it has not sent yet


@dataclass(frozen=True, slots=True)
class EndStream:
    stream_id: int
    end: StreamEnd


@dataclass(frozen=True, slots=True)
class FirstChunk:
    """The times, in order, of a stream whose first audio is in the PcmBatch that follows."""

    stream_id: int
    opened_s: float
    started_s: float  # when it got its slot
    step_began_s: float  # the talker's step that made frame 0
    step_ended_s: float
    taken_s: float  # when Code2Wav took frame 0 from the ring
    call_began_s: float  # the Code2Wav call that decoded frame 0
    call_ended_s: float

    @property
    def times(self) -> tuple[float, ...]:
        until_step_s = (self.opened_s, self.started_s, self.step_began_s, self.step_ended_s)
        return (*until_step_s, self.taken_s, self.call_began_s, self.call_ended_s)

    def budget(self, delivered_s: float) -> StreamBudget:
        parts_s = (after - before for before, after in pairwise((*self.times, delivered_s)))
        return StreamBudget(self.opened_s, *parts_s)


@dataclass(frozen=True, slots=True)
class SilentStream:
    """This stream has been silent for so many frames in a row that it seems to have nothing more to say."""

    stream_id: int
    num_frames: int


@dataclass(frozen=True, slots=True)
class PcmBatch:
    """The audio of one Code2Wav call, one row per stream, `num_frames` codec frames each."""

    stream_ids: Int64Array  # [rows]
    first_frames: Int32Array  # [rows]
    num_frames: int
    # Each is one array when sent, and a list of one array per row when read from the ring:
    samples: Int16Array | Float32Array | list[Int16Array]  # [rows, num_frames * frame_samples]; int16 on the ring
    codes: Int16Array | list[Int16Array]  # [rows, num_frames, codebooks] that the samples were decoded from


StoredRecord: TypeAlias = BeginStream | FrameBatch | FlushStream | EndStream
Command: TypeAlias = OpenStream | PushText | EndText | GrantCredit | CancelStream | StoredRecord | EndServer | Shutdown
FrameRecord: TypeAlias = BeginStream | FrameBatch | TextPositions | FlushStream | EndStream | EndServer | Shutdown
PcmRecord: TypeAlias = FirstChunk | PcmBatch | TextPositions | SilentStream | EndStream | EndServer
Record: TypeAlias = Command | FrameRecord | PcmRecord


# Layout of a record: HEADER, then the body of its kind. Little-endian, like the machine; arrays are aligned.
#
#   OpenStream   codebooks    stream_id     see opening.py
#   PushText     num_ids      stream_id     i32 ids
#   GrantCredit  num_frames   stream_id
#   BeginStream  num_frames   stream_id     BEGIN, i16 past codes [num_frames, codebooks]; 0 frames without
#   FrameBatch   rows         0             TIMES, i64 stream ids, i32 frame indices, i16 codes [rows, codebooks]
#   TextPositions rows        0             i64 stream ids, i32 frame indices, f32 positions
#   FirstChunk   0            stream_id     FIRST_CHUNK
#   PcmBatch     rows         num_frames    CODEBOOKS, i64 stream ids, i32 first frames,
#                                           i16 codes [rows, num_frames, codebooks], i16 samples [rows, samples]
#   SilentStream num_frames   stream_id
#   EndStream    reason       stream_id     END, detail in UTF-8
#   FlushStream  is_blocked   stream_id
#   EndText, CancelStream: 0, stream_id; EndServer: 0, server; Shutdown: 0, 0
HEADER = struct.Struct("=IIq")  # kind, count, stream_id (or what the table has in its place)
BEGIN = struct.Struct("=2d3q")  # opened_s, started_s, first_frame, is_stored, is_background
TIMES = struct.Struct("=2d")  # began_s, ended_s
CODEBOOKS = struct.Struct("=q")  # how many there are
FIRST_CHUNK = struct.Struct("=7d")  # its times
END = struct.Struct("=q2d")  # num_frames, queue_s, generation_s
ROW_BYTES = 8 + 4  # of a batch: stream id, index
DETAIL_BYTES = 512  # longest detail of an EndStream; a longer one is cut


_RECORDS: tuple[type[Record], ...] = get_args(Record)
_KINDS = {record: kind for kind, record in enumerate(_RECORDS)}


@dataclass(frozen=True, slots=True)
class RecordShape:
    """What the sizes of records depend on."""

    codebooks: int
    frame_samples: int
    hidden_size: int
    max_context: int  # most rows of one stream: those of its prompt and its frames together


def max_bytes(kind: type[Record], shape: RecordShape, *, rows: int = 1, num_frames: int = 1) -> int:
    """Return the most bytes that `encode` makes of a record of this kind. `rows` and `num_frames` (per row) describe a
    batch; for a BeginStream `num_frames` counts its past frames."""
    codes_bytes = 2 * shape.codebooks
    body = 0
    if kind is OpenStream:
        ids_bytes = 4 * 7 * shape.max_context  # two columns of ids and the trailing ids, see Model.check
        body = OPEN.size + ids_bytes + shape.max_context * codes_bytes + 4 * shape.hidden_size
    elif kind is BeginStream:
        body = BEGIN.size + num_frames * codes_bytes
    elif kind is FrameBatch:
        body = TIMES.size + rows * (ROW_BYTES + codes_bytes)
    elif kind is TextPositions:
        body = rows * (ROW_BYTES + 4)
    elif kind is PcmBatch:
        body = CODEBOOKS.size + rows * (ROW_BYTES + num_frames * (codes_bytes + 2 * shape.frame_samples))
    elif kind is FirstChunk:
        body = FIRST_CHUNK.size
    elif kind is EndStream:
        body = END.size + DETAIL_BYTES
    return HEADER.size + body


def encode(record: Record) -> list[Buffer]:
    """Encode the record as bytes, in parts to be joined. Parts may be views of the record's arrays."""
    kind = _KINDS[type(record)]
    match record:
        case PushText(stream_id, token_ids):
            return [HEADER.pack(kind, len(token_ids), stream_id), array("i", token_ids).tobytes()]
        case GrantCredit(stream_id, count) | FlushStream(stream_id, count) | SilentStream(stream_id, count):
            return [HEADER.pack(kind, count, stream_id)]
        case EndText(number) | CancelStream(number) | EndServer(number):
            return [HEADER.pack(kind, 0, number)]
        case Shutdown():
            return [HEADER.pack(kind, 0, 0)]
        case FrameBatch(stream_ids, indices, codes, began_s, ended_s):
            head = HEADER.pack(kind, len(stream_ids), 0) + TIMES.pack(began_s, ended_s)
            return [head, raw(stream_ids, np.int64), raw(indices, np.int32), raw(codes, np.int16)]
        case TextPositions(stream_ids, indices, positions):
            head = HEADER.pack(kind, len(stream_ids), 0)
            return [head, raw(stream_ids, np.int64), raw(indices, np.int32), raw(positions, np.float32)]
        case PcmBatch(stream_ids, first_frames, num_frames, samples, codes):
            head = HEADER.pack(kind, len(stream_ids), num_frames) + CODEBOOKS.pack(len(codes[0][0]))
            rows = [raw(stream_ids, np.int64), raw(first_frames, np.int32)]
            return [head, *rows, raw(np.asarray(codes), np.int16), raw(np.asarray(samples), np.int16)]
        case OpenStream(stream_id=stream_id):
            codebooks, body = opening_bytes(record)
            return [HEADER.pack(kind, codebooks, stream_id), *body]
        case BeginStream(stream_id, opened_s, started_s, past_codes, first_frame, is_stored, is_background):
            num_past = 0 if past_codes is None else len(past_codes)
            begin = BEGIN.pack(opened_s, started_s, first_frame, is_stored, is_background)
            head = HEADER.pack(kind, num_past, stream_id) + begin
            return [head] if past_codes is None else [head, raw(past_codes, np.int16)]
        case EndStream(stream_id, end):
            head = HEADER.pack(kind, end.reason, stream_id)
            return [head, END.pack(end.num_frames, end.queue_s, end.generation_s), end.detail.encode()[:DETAIL_BYTES]]
        case FirstChunk(stream_id):
            return [HEADER.pack(kind, 0, stream_id), FIRST_CHUNK.pack(*record.times)]


def decode(payload: Buffer) -> Record:
    """Decode a record. The bytes are copied, so the record stays valid after the ring's room is released."""
    kind, count, stream_id = HEADER.unpack_from(payload)
    if kind >= len(_RECORDS):
        raise ValueError(f"ring record of unknown kind {kind}")
    record = _RECORDS[kind]
    if record is PcmBatch:  # these are most of all bytes, so they are copied only once
        return _pcm_batch(memoryview(payload)[HEADER.size :], count, stream_id)
    return _READERS[record](bytearray(payload[HEADER.size :]), count, stream_id)


def _begin_stream(body: bytearray, count: int, stream_id: int) -> BeginStream:
    past_codes = np.frombuffer(body, np.int16, offset=BEGIN.size).reshape(count, -1) if count else None
    opened_s, started_s, first_frame, is_stored, is_background = BEGIN.unpack_from(body)
    return BeginStream(stream_id, opened_s, started_s, past_codes, first_frame, bool(is_stored), bool(is_background))


def _frame_batch(body: bytearray, count: int, _: int) -> FrameBatch:
    stream_ids, frame_indices, codes = _rows(body, count, TIMES.size, np.int16)
    return FrameBatch(stream_ids, frame_indices, codes.reshape(count, -1), *TIMES.unpack_from(body))


def _end_stream(body: bytearray, reason: int, stream_id: int) -> EndStream:
    detail = body[END.size :].decode(errors="ignore")
    num_frames, queue_s, generation_s = END.unpack_from(body)
    return EndStream(stream_id, StreamEnd(FinishReason(reason), num_frames, queue_s, generation_s, detail))


# What makes a record of its body and of the count and the stream's id in its header.
_READERS: dict[type[Record], Callable[[bytearray, int, int], Record]] = {
    OpenStream: opening,
    PushText: lambda body, _, stream_id: PushText(stream_id, tuple(np.frombuffer(body, np.int32).tolist())),
    EndText: lambda _, __, stream_id: EndText(stream_id),
    GrantCredit: lambda _, count, stream_id: GrantCredit(stream_id, count),
    CancelStream: lambda _, __, stream_id: CancelStream(stream_id),
    EndServer: lambda _, __, server: EndServer(server),
    Shutdown: lambda _, __, ___: Shutdown(),
    BeginStream: _begin_stream,
    FrameBatch: _frame_batch,
    TextPositions: lambda body, count, _: TextPositions(*_rows(body, count, 0, np.float32)),
    FlushStream: lambda _, is_blocked, stream_id: FlushStream(stream_id, bool(is_blocked)),
    EndStream: _end_stream,
    FirstChunk: lambda body, _, stream_id: FirstChunk(stream_id, *FIRST_CHUNK.unpack_from(body)),
    SilentStream: lambda _, count, stream_id: SilentStream(stream_id, count),
}


def _pcm_batch(body: memoryview, rows: int, num_frames: int) -> PcmBatch:
    """Copy each row by itself, so that a slow listener keeps only its own row in memory and not the whole batch."""
    (codebooks,) = CODEBOOKS.unpack_from(body)
    stream_ids, first_frames, values = _rows(body, rows, CODEBOOKS.size, np.int16)
    num_codes = rows * num_frames * codebooks
    codes, samples = values[:num_codes].reshape(rows, num_frames, codebooks), values[num_codes:].reshape(rows, -1)
    own_samples, own_codes = [row.copy() for row in samples], [row.copy() for row in codes]
    return PcmBatch(stream_ids.copy(), first_frames.copy(), num_frames, own_samples, own_codes)


def _rows(
    body: Buffer, rows: int, offset: int, dtype: type[np.generic]
) -> tuple[Int64Array, Int32Array, npt.NDArray[Any]]:
    """Return the stream ids, the indices, and all values after them."""
    stream_ids = np.frombuffer(body, np.int64, rows, offset)
    indices = np.frombuffer(body, np.int32, rows, offset + stream_ids.nbytes)
    return stream_ids, indices, np.frombuffer(body, dtype, offset=offset + stream_ids.nbytes + indices.nbytes)
