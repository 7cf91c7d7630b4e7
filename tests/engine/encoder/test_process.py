"""The loops of the processes over a socket: of the decoder, and of the encoder with one that does as it is told."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest

from sonorant.engine.encoder import decoding as decoder
from sonorant.engine.encoder import process
from sonorant.engine.encoder.limits import memory_limit
from sonorant.engine.encoder.recording import RATES_HZ, read_upload
from sonorant.engine.encoder.wire import Fields, decoded, decoding, encoded, encoding, packed, read_answer, serve
from sonorant.engine.errors import EncodingFailed, InvalidRecording
from sonorant.engine.ipc.handed import SocketEnd
from sonorant.engine.types import MAX_RECORDING_S, Float32Array, Int16Array, RecordingInfo
from tests.engine.encoder.recordings import audio_file, noise, spoken

Ask = Callable[[Fields, bytes], Awaitable[tuple[Any, bytes]]]
INFO = RecordingInfo(1234, -20.5, 44100, 2)


class Encoder:
    def __init__(self) -> None:
        self.error: Exception | None = None
        self.value = 1.0

    def encode(self, samples: Float32Array, *, with_codes: bool) -> tuple[Float32Array, Int16Array | None]:
        if self.error:
            raise self.error
        x_vector = np.full(8, self.value, np.float32)
        return x_vector, np.zeros((len(samples) // 1920, 4), np.int16) if with_codes else None


@asynccontextmanager
async def serving(work: Callable[[Fields, bytes], tuple[Fields, bytes]]) -> AsyncIterator[Ask]:
    """Sends one recording at a time. Leaving the context closes the owner's side, so that the loop returns."""
    ours, theirs = socket.socketpair()
    with theirs:
        thread = threading.Thread(target=serve, args=("worker", SocketEnd(theirs), work))
        thread.start()
        reader, writer = await asyncio.open_unix_connection(sock=ours)

        async def ask(fields: Fields, data: bytes) -> tuple[Any, bytes]:
            writer.write(packed(fields, data))
            return await read_answer(reader, 1_000_000)

        try:
            yield ask
        finally:
            writer.close()
            await writer.wait_closed()
            await asyncio.to_thread(thread.join, 10)
            assert not thread.is_alive()


async def test_files_become_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(decoder.decode) as ask:
        found = decoded(*await ask(decoding(24000), spoken()))
        direct = read_upload(spoken(), 24000)
        assert found.recording == direct.info and found.samples == direct.samples.tobytes()
        with pytest.raises(InvalidRecording):
            await ask(decoding(24000), b"nothing")

        def fail(error: Exception) -> None:
            def read(data: bytes, rate_hz: int) -> None:
                raise error

            monkeypatch.setattr(decoder, "read_upload", read)

        for error, message in (
            (RuntimeError("private"), r"could not be decoded \(RuntimeError\); give it as a WAV file"),
            (MemoryError(), "decoding it took too much memory"),
        ):
            fail(error)
            with pytest.raises(EncodingFailed, match=message):
                await ask(decoding(24000), spoken())
        monkeypatch.undo()
        assert len(decoded(*await ask(decoding(16000), spoken())).samples) == 4 * 2 * 16000


async def test_each_recording_gets_what_was_asked_for() -> None:
    encoder = Encoder()
    samples = noise(2).tobytes()
    async with serving(partial(process.encode, encoder)) as ask:
        for with_codes in (False, True):
            answer = encoded(INFO, (await ask(encoding(with_codes), samples))[1], with_codes, 8, 4)
            assert answer.x_vector is not None and (answer.codes is not None) == with_codes
        encoder.error = RuntimeError("private")
        with pytest.raises(EncodingFailed, match=r"could not be encoded \(RuntimeError\)"):
            await ask(encoding(True), samples)
        encoder.error, encoder.value = None, np.nan
        with pytest.raises(EncodingFailed, match="not finite"):
            await ask(encoding(True), samples)
        encoder.value = 1.0
        await ask(encoding(True), samples)


def test_the_largest_recording_is_decoded_within_a_third_of_the_memory() -> None:
    rate_hz = RATES_HZ.stop - 1
    data = audio_file(np.repeat(noise(MAX_RECORDING_S, rate_hz)[:, None], 2, axis=1), rate_hz, subtype="FLOAT")
    with memory_limit(decoder.DECODING_BYTES // 3):
        assert len(read_upload(data, 24000).samples) == MAX_RECORDING_S * 24000
