"""The protocol between the engine and its encoder process, over a socket: a request, its answer, the next request.

The process decodes files from strangers, so its answers are not trusted: they are read as bounded lengths, JSON and
numbers of known types, and never run code, as a pickle could.
"""

import asyncio
import json
import struct
from dataclasses import asdict, dataclass
from enum import IntEnum
from io import BufferedRWPair

import numpy as np

from sonorant.engine.errors import EncodingFailed, InvalidRecording
from sonorant.engine.types import Float32Array, Int16Array, RecordingInfo

REQUEST = struct.Struct("<BxxxxxxxQ")  # Want, bytes of the recording that follows
ANSWER = struct.Struct("<II")  # bytes of the JSON, bytes of the arrays that follow
MAX_TEXT_BYTES = 16 * 1024
MAX_MESSAGE_CHARS = 1024
MAX_ARRAY_BYTES = 64 * 1024  # those of the longest recording are a third of it


class Want(IntEnum):
    """What to make of a recording, beyond checking it."""

    NOTHING = 0
    X_VECTOR = 1
    X_VECTOR_AND_CODES = 2


@dataclass(frozen=True, slots=True)
class Request:
    want: Want
    audio: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    recording: RecordingInfo
    x_vector: Float32Array | None = None  # [hidden]
    codes: Int16Array | None = None  # [frames, codebooks]


def write_request(writer: asyncio.StreamWriter, request: Request) -> None:
    writer.write(REQUEST.pack(request.want, len(request.audio)))
    writer.write(request.audio)


def read_request(stream: BufferedRWPair) -> Request | None:
    """Read the next request; return None when the engine is gone."""
    header = stream.read(REQUEST.size)
    if len(header) < REQUEST.size:
        return None
    want, num_bytes = REQUEST.unpack(header)
    audio = stream.read(num_bytes)
    return Request(Want(want), audio) if len(audio) == num_bytes else None


def write_answer(stream: BufferedRWPair, answer: Answer | InvalidRecording | EncodingFailed) -> None:
    match answer:
        case Answer(recording, x_vector, codes):
            said: dict[str, object] = asdict(recording)
            arrays = b"".join(array.tobytes() for array in (x_vector, codes) if array is not None)
        case InvalidRecording(reason=reason):
            said, arrays = {"reason": reason, "message": str(answer)[:MAX_MESSAGE_CHARS]}, b""
        case EncodingFailed():
            said, arrays = {"message": str(answer)[:MAX_MESSAGE_CHARS]}, b""
    text = json.dumps(said).encode()
    stream.write(ANSWER.pack(len(text), len(arrays)) + text + arrays)
    stream.flush()


async def read_answer(
    reader: asyncio.StreamReader, want: Want, hidden_size: int, num_codebooks: int
) -> Answer | InvalidRecording | EncodingFailed:
    """Read an answer. Raises ValueError if it is invalid, asyncio.IncompleteReadError if the encoder is gone."""
    num_text_bytes, num_array_bytes = ANSWER.unpack(await reader.readexactly(ANSWER.size))
    if num_text_bytes > MAX_TEXT_BYTES or num_array_bytes > MAX_ARRAY_BYTES:
        raise ValueError(f"{num_text_bytes} and {num_array_bytes} bytes")
    text, arrays = await reader.readexactly(num_text_bytes), await reader.readexactly(num_array_bytes)
    try:
        said = json.loads(text)
        if "reason" in said:
            return InvalidRecording(str(said["reason"]), str(said["message"]))
        if "message" in said:
            return EncodingFailed(str(said["message"]))
        recording = RecordingInfo(
            int(said["duration_ms"]), float(said["level_dbfs"]), int(said["sample_rate_hz"]), int(said["channels"])
        )
    except (KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(repr(error)) from error
    if want is Want.NOTHING:
        return Answer(recording)
    # Copied to be writable: torch warns about read-only arrays.
    x_vector = np.frombuffer(arrays, "<f4", hidden_size).copy()
    if want is Want.X_VECTOR:
        return Answer(recording, x_vector)
    codes = np.frombuffer(arrays, "<i2", offset=4 * hidden_size).reshape(-1, num_codebooks).copy()
    return Answer(recording, x_vector, codes)
