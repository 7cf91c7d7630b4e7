"""The protocol with the processes that decode and encode recordings, over a socket: a request, its answer, the next.

Each message is JSON and bytes: a file, samples or codes. The processes that decode read files from strangers, so what
they answer is not trusted: it is read as bounded lengths, JSON and numbers of known types, and never runs code, as a
pickle could.
"""

import asyncio
import json
import logging
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from io import BufferedRWPair
from typing import Any

import numpy as np

from sonorant.engine.errors import EncodingFailed, InvalidRecording
from sonorant.engine.ipc.handed import SocketEnd
from sonorant.engine.types import MAX_RECORDING_S, Float32Array, Int16Array, RecordingInfo

log = logging.getLogger(__name__)

HEAD = struct.Struct("<II")  # bytes of the JSON, bytes that follow it
MAX_TEXT_BYTES = 16 * 1024
MAX_MESSAGE_CHARS = 1024
MAX_CODES_BYTES = 64 * 1024  # the embedding and the codes of the longest recording are a third of it


class Want(IntEnum):
    """What to make of a recording, beyond checking it."""

    NOTHING = 0
    X_VECTOR = 1
    X_VECTOR_AND_CODES = 2


@dataclass(frozen=True, slots=True)
class Upload:
    """A recording as it came."""

    audio: bytes
    digest: bytes
    want: Want
    caller: int  # whose turn it uses
    holder: int  # who may get the result again without an encoding; 0: everybody
    wait_s: float = 0.0  # how long the caller would wait, if that is longer than a recording may wait in any case


@dataclass(frozen=True, slots=True)
class Decoded:
    recording: RecordingInfo
    samples: bytes  # float32, mono, at the rate that was asked for


@dataclass(frozen=True, slots=True)
class EncoderAnswer:
    recording: RecordingInfo
    x_vector: Float32Array | None = None  # [hidden]
    codes: Int16Array | None = None  # [frames, codebooks]

    @property
    def num_bytes(self) -> int:
        """About as much memory as it takes."""
        return 512 + sum(array.nbytes for array in (self.x_vector, self.codes) if array is not None)


Fields = Mapping[str, Any]


def packed(fields: Fields, data: bytes = b"") -> bytes:
    text = json.dumps(fields).encode()
    return HEAD.pack(len(text), len(data)) + text + data


def receive(stream: BufferedRWPair) -> tuple[Fields, bytes] | None:
    """Read the next request; return None when the owner is gone."""
    head = stream.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    num_text_bytes, num_bytes = HEAD.unpack(head)
    text, data = stream.read(num_text_bytes), stream.read(num_bytes)
    return (json.loads(text), data) if len(data) == num_bytes else None


def error_fields(error: InvalidRecording | EncodingFailed) -> Fields:
    reason = {"reason": error.reason} if isinstance(error, InvalidRecording) else {}
    return {**reason, "message": str(error)[:MAX_MESSAGE_CHARS]}


def serve(name: str, end: SocketEnd, work: Callable[[Fields, bytes], tuple[Fields, bytes]]) -> None:
    """Answer requests until the owner is gone; InvalidRecording and EncodingFailed, if `work` raises them, as well."""
    try:
        with end.socket, end.socket.makefile("rwb") as stream:
            while (request := receive(stream)) is not None:
                try:
                    answer = packed(*work(*request))
                except (InvalidRecording, EncodingFailed) as error:
                    answer = packed(error_fields(error))
                stream.write(answer)
                stream.flush()
    except (BrokenPipeError, ConnectionResetError):
        log.info("the owner is gone, %s stops", name)


async def read_answer(reader: asyncio.StreamReader, max_bytes: int) -> tuple[Fields, bytes]:
    """Read an answer. Raises InvalidRecording or EncodingFailed if it is one, ValueError if it is none at all, and
    asyncio.IncompleteReadError if the process is gone."""
    num_text_bytes, num_bytes = HEAD.unpack(await reader.readexactly(HEAD.size))
    if num_text_bytes > MAX_TEXT_BYTES or num_bytes > max_bytes:
        raise ValueError(f"{num_text_bytes} and {num_bytes} bytes")
    text, data = await reader.readexactly(num_text_bytes), await reader.readexactly(num_bytes)
    try:
        fields = json.loads(text)
        if "reason" in fields:
            raise InvalidRecording(str(fields["reason"]), str(fields["message"]))
        if "message" in fields:
            raise EncodingFailed(str(fields["message"]))
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(repr(error)) from error
    return fields, data


def decoding(rate_hz: int) -> Fields:
    """The request to decode a recording to this rate; the recording is with it."""
    return {"rate_hz": rate_hz}


def max_samples_bytes(rate_hz: int) -> int:
    return 4 * (round(MAX_RECORDING_S * rate_hz) + 1)


def decoded(fields: Fields, samples: bytes) -> Decoded:
    """Raises ValueError for an invalid answer."""
    try:
        info = RecordingInfo(
            int(fields["duration_ms"]),
            float(fields["level_dbfs"]),
            int(fields["sample_rate_hz"]),
            int(fields["channels"]),
            int(fields["speech_ms"]),
        )
    except (KeyError, TypeError, OverflowError) as error:
        raise ValueError(repr(error)) from error
    if len(samples) % 4:
        raise ValueError(f"{len(samples)} bytes of samples")
    return Decoded(info, samples)


def encoding(with_codes: bool) -> Fields:
    """The request to encode a recording; its samples are with it."""
    return {"with_codes": with_codes}


def encoded(
    recording: RecordingInfo, arrays: bytes, with_codes: bool, hidden_size: int, num_codebooks: int
) -> EncoderAnswer:
    """Raises ValueError for an invalid answer."""
    # Copied to be writable: torch warns about read-only arrays.
    x_vector = np.frombuffer(arrays, "<f4", hidden_size).copy()
    if not with_codes:
        return EncoderAnswer(recording, x_vector)
    codes = np.frombuffer(arrays, "<i2", offset=4 * hidden_size).reshape(-1, num_codebooks).copy()
    return EncoderAnswer(recording, x_vector, codes)
