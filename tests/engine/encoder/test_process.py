"""The encoder's loop over a socket, with encoders that do as they are told."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import numpy as np

from sonorant.engine.encoder.limits import memory_limit
from sonorant.engine.encoder.process import DECODING_BYTES, serve
from sonorant.engine.encoder.recording import MAX_RECORDING_S, RATES_HZ, read_upload
from sonorant.engine.encoder.wire import Answer, Request, Want, read_answer, write_request
from sonorant.engine.errors import EncodingFailed, InvalidRecording
from sonorant.engine.types import Float32Array, Int16Array
from tests.engine.encoder.recordings import audio_file, noise, spoken

Ask = Callable[[bytes, Want], Awaitable[object]]


class Encoder:
    sample_rate_hz = 24000

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.value = 1.0

    def x_vector(self, samples: Float32Array) -> Float32Array:
        if self.error:
            raise self.error
        return np.full(8, self.value, np.float32)

    def codes(self, samples: Float32Array) -> Int16Array:
        return np.zeros((len(samples) // 1920, 4), np.int16)


@asynccontextmanager
async def serving(encoder: Encoder) -> AsyncIterator[Ask]:
    """Sends one recording at a time. Leaving the context closes the engine's side, so that the loop returns."""
    ours, theirs = socket.socketpair()
    with theirs, theirs.makefile("rwb") as stream:
        thread = threading.Thread(target=serve, args=(stream, encoder))
        thread.start()
        reader, writer = await asyncio.open_unix_connection(sock=ours)

        async def ask(audio: bytes, want: Want) -> object:
            write_request(writer, Request(want, audio))
            return await read_answer(reader, want, 8, 4)

        try:
            yield ask
        finally:
            writer.close()
            await writer.wait_closed()
            await asyncio.to_thread(thread.join, 10)
            assert not thread.is_alive()


async def test_each_recording_gets_what_was_asked_for() -> None:
    async with serving(Encoder()) as ask:
        for want, has_x_vector, has_codes in (
            (Want.NOTHING, False, False),
            (Want.X_VECTOR, True, False),
            (Want.X_VECTOR_AND_CODES, True, True),
        ):
            answer = await ask(spoken(), want)
            assert isinstance(answer, Answer)
            assert (answer.x_vector is not None, answer.codes is not None) == (has_x_vector, has_codes)


async def test_what_goes_wrong_with_one_recording_ends_with_it() -> None:
    encoder = Encoder()
    async with serving(encoder) as ask:
        for error, message in (
            (RuntimeError("private"), r"could not be encoded (RuntimeError); give it as a WAV file"),
            (MemoryError(), "decoding it took too much memory"),
        ):
            encoder.error = error
            answer = await ask(spoken(), Want.X_VECTOR)
            assert isinstance(answer, EncodingFailed)
            assert message in str(answer) and "private" not in str(answer)
        encoder.error, encoder.value = None, np.nan
        assert "not finite" in str(await ask(spoken(), Want.X_VECTOR))
        assert isinstance(await ask(b"nothing", Want.X_VECTOR), InvalidRecording)
        encoder.value = 1.0
        assert isinstance(await ask(spoken(), Want.X_VECTOR), Answer)


def test_the_largest_recording_is_decoded_within_a_third_of_the_memory() -> None:
    rate_hz = RATES_HZ.stop - 1
    data = audio_file(np.repeat(noise(MAX_RECORDING_S, rate_hz)[:, None], 2, axis=1), rate_hz, subtype="FLOAT")
    with memory_limit(DECODING_BYTES // 3):
        assert len(read_upload(data, 24000).samples) == MAX_RECORDING_S * 24000
