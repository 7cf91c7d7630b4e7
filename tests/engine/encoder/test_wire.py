import asyncio
import io
import socket
import struct

import numpy as np
import pytest

from sonorant.engine.encoder.wire import Answer, Request, Want, read_answer, read_request, write_answer, write_request
from sonorant.engine.errors import EncodingFailed, InvalidRecording
from sonorant.engine.types import RecordingInfo

HIDDEN, CODEBOOKS = 8, 4
INFO = RecordingInfo(1234, -20.5, 44100, 2)
X_VECTOR = np.arange(HIDDEN, dtype=np.float32)
CODES = np.arange(5 * CODEBOOKS, dtype=np.int16).reshape(5, CODEBOOKS)


async def received(data: bytes, want: Want = Want.X_VECTOR_AND_CODES) -> object:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    return await read_answer(reader, want, HIDDEN, CODEBOOKS)


def written(answer: Answer | InvalidRecording | EncodingFailed) -> bytes:
    stream = io.BytesIO()
    write_answer(stream, answer)  # type: ignore[arg-type]
    return stream.getvalue()


@pytest.mark.parametrize(
    ("want", "x_vector", "codes"),
    [(Want.NOTHING, None, None), (Want.X_VECTOR, X_VECTOR, None), (Want.X_VECTOR_AND_CODES, X_VECTOR, CODES)],
)
async def test_answers_come_through(want: Want, x_vector: np.ndarray | None, codes: np.ndarray | None) -> None:
    answer = await received(written(Answer(INFO, x_vector, codes)), want)
    assert isinstance(answer, Answer)
    assert answer.recording == INFO
    np.testing.assert_equal((answer.x_vector, answer.codes), (x_vector, codes))


async def test_errors_come_through() -> None:
    invalid = await received(written(InvalidRecording("RECORDING_SILENT", "no sound")))
    assert isinstance(invalid, InvalidRecording)
    assert (invalid.reason, str(invalid), invalid.field) == ("RECORDING_SILENT", "no sound", "reference")
    failed = await received(written(EncodingFailed("broke" * 10_000)))
    assert isinstance(failed, EncodingFailed) and len(str(failed)) == 1024


@pytest.mark.parametrize("num_bytes", [0, 5, 30])
async def test_half_an_answer_is_the_death_of_the_encoder(num_bytes: int) -> None:
    with pytest.raises(asyncio.IncompleteReadError):
        await received(written(Answer(INFO, X_VECTOR))[:num_bytes])


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("<II", 1 << 30, 0),
        struct.pack("<II", 0, 1 << 30),
        *(struct.pack("<II", len(text), 0) + text for text in (b"", b"{}", b"[]", b"3", b"\xff", b'{"reason": 1}')),
        *(struct.pack("<II", len(text), 0) + text for text in (b'{"duration_ms": Infinity}', b"[" * 16_000)),
        struct.pack("<II", 2, 3) + b"{}abc",
        written(Answer(INFO)),
        written(Answer(INFO, X_VECTOR[:5])),
        written(Answer(INFO, X_VECTOR, CODES[:, :3])),
    ],
)
async def test_nonsense_is_told_from_an_answer(data: bytes) -> None:
    with pytest.raises(ValueError):
        await received(data)


async def test_requests_come_through_until_the_engine_is_gone() -> None:
    ours, theirs = socket.socketpair()
    request = Request(Want.X_VECTOR, b"recording" * 100_000)
    with theirs, theirs.makefile("rwb") as stream:
        _, writer = await asyncio.open_unix_connection(sock=ours)
        write_request(writer, request)
        assert await asyncio.to_thread(read_request, stream) == request
        writer.write(b"half")
        writer.close()
        await writer.wait_closed()
        assert await asyncio.to_thread(read_request, stream) is None
