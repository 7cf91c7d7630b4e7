"""The bytes of AUDIO_ENCODING_CODES, which audio.proto describes: the model's codes. Pure.

Each frame is packed by itself into whole bytes, and chunks are cut only between records, so all that arrived is usable.
"""

import struct
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from sonorant.engine import EngineInfo, Int16Array

MAGIC = b"SNRC"
VERSION = 1
MAX_DURATION_S = 3600
MAX_RECORDS = 100_000
MAX_PARTS = 4096  # segments and pauses; each costs time on the event loop
RECORDS_AT_ONCE = 500
FRAMES_AT_ONCE = 4096
MAX_COUNT = (1 << 14) - 1  # the largest count of a record
FEW = 4  # below this many frames, plain Python is faster than NumPy

_HEADER = struct.Struct("<4sBBBxII8s8s")
_RECORD = struct.Struct("<H")  # the kind in the upper two bits, the count in the lower fourteen


class Kind(IntEnum):
    FRAMES = 0  # more frames of the current segment
    SEGMENT = 1  # the first frames of a segment
    PAUSE = 2  # silence, in milliseconds
    PAST = 3  # frames that are decoded before each segment for the decoder's state, and not heard


@dataclass(frozen=True, slots=True)
class CodesHeader:
    num_codebooks: int
    bits: int  # of a code
    sample_rate_hz: int
    frame_samples: int
    codec: str  # fingerprint, 16 hex digits
    checkpoint: str  # fingerprint of the checkpoint that spoke, 16 hex digits

    @classmethod
    def of(cls, info: EngineInfo) -> "CodesHeader":
        bits = (info.codebook_size - 1).bit_length()
        rates = info.sample_rate_hz, info.frame_samples
        return cls(info.num_codebooks, bits, *rates, info.codec, info.fingerprint)

    @property
    def frame_bytes(self) -> int:
        return -(-self.num_codebooks * self.bits // 8)

    def to_bytes(self) -> bytes:
        fingerprints = bytes.fromhex(self.codec), bytes.fromhex(self.checkpoint)
        shape = self.num_codebooks, self.bits, self.sample_rate_hz, self.frame_samples
        return _HEADER.pack(MAGIC, VERSION, *shape, *fingerprints)

    def pack(self, codes: Int16Array) -> bytes:  # [frames, codebooks]
        if len(codes) < FEW:
            packed = []
            for frame in codes.tolist():
                number = 0
                for code in reversed(frame):
                    number = number << self.bits | code
                packed.append(number.to_bytes(self.frame_bytes, "little"))
            return b"".join(packed)
        pairs = codes.astype("<i2").view(np.uint8).reshape(len(codes), -1, 2)
        bits = np.unpackbits(pairs, axis=2, count=self.bits, bitorder="little")
        return np.packbits(bits.reshape(len(codes), -1), axis=1, bitorder="little").tobytes()

    def unpack(self, data: bytes) -> Int16Array:  # [frames, codebooks]
        rows = np.frombuffer(data, np.uint8).reshape(-1, self.frame_bytes)
        bits = np.unpackbits(rows, axis=1, count=self.num_codebooks * self.bits, bitorder="little")
        values = bits.reshape(len(rows), self.num_codebooks, self.bits) @ (1 << np.arange(self.bits))
        return values.astype(np.int16)


def record(kind: Kind, count: int, data: bytes = b"") -> bytes:
    return _RECORD.pack(kind << 14 | count) + data


def join(records: Sequence[bytes]) -> bytes:
    """Join records into fewer: FRAMES are appended to the record of frames before them."""
    joined: list[bytes] = []
    head, parts = 0, list[bytes]()

    def close() -> None:
        if parts:
            joined.extend((_RECORD.pack(head), *parts))

    for data in records:
        (more,) = _RECORD.unpack_from(data)
        goes_on = more >> 14 == Kind.FRAMES and head >> 14 in (Kind.FRAMES, Kind.SEGMENT)
        if parts and goes_on and (head & MAX_COUNT) + more <= MAX_COUNT:
            head += more
            parts.append(data[_RECORD.size :])
        else:
            close()
            head, parts = more, [data[_RECORD.size :]]
    close()
    return b"".join(joined)


@dataclass(frozen=True, slots=True)
class StoredCodes:
    """Parsed codes."""

    header: CodesHeader
    past: Int16Array | None  # [frames, codebooks]
    parts: tuple[Int16Array | int, ...]  # in order: segments [frames, codebooks], and pauses in milliseconds

    @property
    def segments(self) -> list[Int16Array]:
        return [part for part in self.parts if not isinstance(part, int)]

    @property
    def duration_s(self) -> float:
        """The duration at the speed at which the model spoke."""
        num_frames = sum(map(len, self.segments))
        pauses_ms = sum(part for part in self.parts if isinstance(part, int))
        return num_frames * self.header.frame_samples / self.header.sample_rate_hz + pauses_ms / 1000


def parse(data: bytes) -> StoredCodes:
    """Parse codes. Raises ValueError that says what is wrong, and where."""
    *_, stored = parsing(data)
    assert stored is not None, "it comes last"
    return stored


def parsing(data: bytes) -> Iterator[StoredCodes | None]:
    """Parse in steps of about a millisecond; an hour of codes takes a hundred. Yields None until all is read."""
    header = _header(data)
    past: list[bytes] = []
    parts: list[list[bytes] | int] = []  # for a segment, the bytes of its frames
    for number, (kind, count, frames) in enumerate(_records(data, header), 1):
        match kind:
            case Kind.PAST:
                past.append(frames)
            case Kind.PAUSE:
                parts.append(count)
            case Kind.FRAMES if parts and isinstance(segment := parts[-1], list):
                segment.append(frames)
            case _:
                parts.append([frames])
        if len(parts) > MAX_PARTS:
            raise ValueError(f"they have over {MAX_PARTS} segments and pauses; cut them")
        if number % RECORDS_AT_ONCE == 0:
            yield None
    past_codes = (yield from _unpacking(header, past)) if past else None
    unpacked: list[Int16Array | int] = []
    for part in parts:
        unpacked.append(part if isinstance(part, int) else (yield from _unpacking(header, part)))
    yield StoredCodes(header, past_codes, tuple(unpacked))


def _unpacking(header: CodesHeader, frames: Sequence[bytes]) -> Generator[None, None, Int16Array]:
    data, size = b"".join(frames), FRAMES_AT_ONCE * header.frame_bytes
    pieces = []
    for at in range(0, max(1, len(data)), size):
        pieces.append(header.unpack(data[at : at + size]))
        yield
    return np.concatenate(pieces)


def _header(data: bytes) -> CodesHeader:
    if not data.startswith(MAGIC):
        raise ValueError("they do not begin with SNRC, as codes do; give the bytes that came with AUDIO_ENCODING_CODES")
    if len(data) < _HEADER.size:
        raise ValueError(f"{len(data)} bytes are not even a header, which has {_HEADER.size}")
    _, version, num_codebooks, bits, rate_hz, frame_samples, codec, checkpoint = _HEADER.unpack_from(data)
    if version != VERSION:
        raise ValueError(f"they are of version {version}, this server knows version {VERSION}: use a newer server")
    if not (num_codebooks and 0 < bits < 16 and rate_hz and frame_samples):
        raise ValueError(f"the header says {num_codebooks} codebooks of {bits} bits, {frame_samples} samples a frame")
    return CodesHeader(num_codebooks, bits, rate_hz, frame_samples, codec.hex(), checkpoint.hex())


def _records(data: bytes, header: CodesHeader) -> Iterator[tuple[Kind, int, bytes]]:
    """Yield the kind and count of each record, and the bytes of its frames."""
    at, number, duration_s = _HEADER.size, 0, 0.0
    while at < len(data):
        number += 1
        if data.startswith(MAGIC, at):  # a header could be mistaken for a valid record
            raise ValueError(f"another utterance begins at byte {at}, and one is decoded at a time; cut them there")
        if at + _RECORD.size > len(data):
            raise ValueError(f"they end in the middle of a record; the first {at} bytes are whole")
        (head,) = _RECORD.unpack_from(data, at)
        kind, count = Kind(head >> 14), head & MAX_COUNT
        start = at + _RECORD.size
        end = start if kind is Kind.PAUSE else start + count * header.frame_bytes
        if end > len(data):
            raise ValueError(f"they end in the middle of a record; the first {at} bytes are whole")
        seconds = count / 1000 if kind is Kind.PAUSE else count * header.frame_samples / header.sample_rate_hz
        duration_s += seconds
        if number > MAX_RECORDS or duration_s > MAX_DURATION_S:
            raise ValueError(f"they are longer than {MAX_DURATION_S} s, or have over {MAX_RECORDS} records; cut them")
        yield kind, count, data[start:end]
        at = end
