import asyncio
import json
import socket
import struct
from dataclasses import asdict

import numpy as np
import pytest

from sonorant.engine.encoder.wire import (
    EncoderAnswer,
    Fields,
    decoded,
    decoding,
    encoded,
    error_fields,
    packed,
    read_answer,
    receive,
)
from sonorant.engine.errors import EncodingFailed, InvalidRecording
from sonorant.engine.types import RecordingInfo

HIDDEN, CODEBOOKS = 8, 4
INFO = RecordingInfo(1234, -20.5, 44100, 2)
X_VECTOR = np.arange(HIDDEN, dtype=np.float32)
CODES = np.arange(5 * CODEBOOKS, dtype=np.int16).reshape(5, CODEBOOKS)


async def received(data: bytes) -> tuple[Fields, bytes]:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    return await read_answer(reader, 1000)


async def test_samples_come_through() -> None:
    found = decoded(*await received(packed(asdict(INFO), X_VECTOR.tobytes())))
    assert found.recording == INFO
    np.testing.assert_array_equal(np.frombuffer(found.samples, np.float32), X_VECTOR)


@pytest.mark.parametrize("codes", [None, CODES])
async def test_arrays_come_through(codes: np.ndarray | None) -> None:
    _, arrays = await received(packed({}, X_VECTOR.tobytes() + (b"" if codes is None else codes.tobytes())))
    found = encoded(INFO, arrays, codes is not None, HIDDEN, CODEBOOKS)
    assert isinstance(found, EncoderAnswer) and found.recording == INFO
    np.testing.assert_equal((found.x_vector, found.codes), (X_VECTOR, codes))


async def test_errors_come_through() -> None:
    with pytest.raises(InvalidRecording) as invalid:
        await received(packed(error_fields(InvalidRecording("RECORDING_SILENT", "no sound"))))
    assert (invalid.value.reason, str(invalid.value), invalid.value.field) == (
        "RECORDING_SILENT",
        "no sound",
        "reference",
    )
    with pytest.raises(EncodingFailed) as failed:
        await received(packed(error_fields(EncodingFailed("broke" * 10_000))))
    assert len(str(failed.value)) == 1024


@pytest.mark.parametrize("num_bytes", [0, 5, 30])
async def test_half_an_answer_is_the_death_of_the_process(num_bytes: int) -> None:
    with pytest.raises(asyncio.IncompleteReadError):
        await received(packed(asdict(INFO), X_VECTOR.tobytes())[:num_bytes])


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("<II", 1 << 30, 0),
        struct.pack("<II", 0, 1 << 30),
        *(struct.pack("<II", len(text), 0) + text for text in (b"", b"{}", b"[]", b"3", b"\xff", b'{"reason": 1}')),
        *(struct.pack("<II", len(text), 0) + text for text in (b'{"duration_ms": Infinity}', b"[" * 16_000)),
        packed(asdict(INFO), b"abc"),
    ],
)
async def test_nonsense_is_told_from_samples(data: bytes) -> None:
    with pytest.raises(ValueError):
        decoded(*await received(data))


@pytest.mark.parametrize("arrays", [b"", X_VECTOR[:5].tobytes(), X_VECTOR.tobytes() + CODES[:, :3].tobytes()])
def test_nonsense_is_told_from_arrays(arrays: bytes) -> None:
    with pytest.raises(ValueError):
        encoded(INFO, arrays, True, HIDDEN, CODEBOOKS)


async def test_requests_come_through_until_the_owner_is_gone() -> None:
    ours, theirs = socket.socketpair()
    recording = b"recording" * 100_000
    with theirs, theirs.makefile("rwb") as stream:
        _, writer = await asyncio.open_unix_connection(sock=ours)
        writer.write(packed(decoding(24000), recording))
        assert await asyncio.to_thread(receive, stream) == (json.loads(json.dumps(decoding(24000))), recording)
        writer.write(b"half")
        writer.close()
        await writer.wait_closed()
        assert await asyncio.to_thread(receive, stream) is None
