"""Reads a session's responses. If the server is silent for too long, searches for another one in the meantime."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import grpc

from sonorant.client.lines import Lines
from sonorant.client.patience import Patience
from sonorant.client.seeking import Connect, Found, Seeking
from sonorant.client.vigil import Vigil
from sonorant.tts.v1.speak_pb2 import SessionStarted


class Hearing:
    """Reads one call at a time. A silent call stays open while another server is sought: the session continues with
    whichever of the two answers first."""

    def __init__(self, lines: Lines, connect: Connect, is_due: Callable[[], bool]) -> None:
        """`is_due` tells whether the server has promised to send something."""
        self._lines = lines
        self._connect = connect
        self._is_due = is_due
        self._patience = Patience()
        self._vigil: Vigil | None = None  # None: the server has not promised to keep `max_silence_ms`
        self._rate_hz = 0
        self._stub: Any = None
        self._seeking: asyncio.Task[Found] | None = None
        self._woken: asyncio.Future[None] | None = None
        self.silent_since_s: float | None = None  # on the monotonic clock: when the current search began, if any
        self.error: grpc.aio.AioRpcError | None = None  # the latest error of a server that could not take the session

    def begin(self, stub: Any, started: SessionStarted) -> None:
        """Begin to listen to a call over `stub`."""
        self._stub = stub
        self._rate_hz = started.audio.sample_rate_hz
        self._patience.max_silence_s = started.max_silence_ms / 1000
        self.silent_since_s = None
        if self._vigil is not None:
            self._vigil.stop()
        loop = asyncio.get_running_loop()
        self._vigil = Vigil(self._patience, self._is_due, self._silent, loop) if started.max_silence_ms else None

    def expect(self) -> None:
        """An utterance was opened: expect responses from now on."""
        if self._vigil is not None:
            self._vigil.begins()

    def dropped(self) -> None:
        """The audio that was received and not heard yet has been dropped."""
        self._patience.dropped()

    async def read(self, call: Any) -> Any:
        """Return a response or EOF, or None if the call was silent and another server has been found. Raises the call's
        error."""
        if self._vigil is None:
            return await call.read()
        loop = asyncio.get_running_loop()
        self._vigil.reads()
        reading = loop.create_task(call.read())
        self._woken = woken = loop.create_future()
        reading.add_done_callback(lambda _: _wake(woken))
        try:
            await woken
        except asyncio.CancelledError:
            reading.cancel()  # and with it the call
            raise
        self._vigil.heard()
        if not reading.done():
            self._lines.leave(call, reading)
            return None
        response = reading.result()
        self._stop_seeking()
        if response is not grpc.aio.EOF and response.HasField("audio") and self._rate_hz:
            self._patience.audio(loop.time(), response.audio.num_samples / self._rate_hz)
        return response

    async def another(self) -> Found:
        """Return a server that takes the session. Raises errors that another attempt would not cure."""
        if self._seeking is None:
            self._seeking = self._seek(self._lines.stub)
        try:
            return await self._seeking
        finally:
            self._seeking = None

    def stop(self) -> None:
        if self._vigil is not None:
            self._vigil.stop()
        self._stop_seeking()

    def _silent(self) -> None:
        if self._seeking is None:
            loop = asyncio.get_running_loop()
            self.silent_since_s = time.monotonic()
            self._seeking = self._seek(self._lines.other_than(self._stub))
            self._seeking.add_done_callback(self._sought)
            self._patience.alarm(loop.time())

    def _seek(self, stub: Any) -> "asyncio.Task[Found]":
        loop = asyncio.get_running_loop()
        answer_s = self._patience.answer_s(loop.time(), self._lines.quickest_s)
        seeking = Seeking(self._lines, self._connect, answer_s, self._patience.most_calls(loop.time()))

        async def seek() -> Found:
            try:
                async with self._lines.seeking:
                    return await seeking.run(stub, persists=True)
            finally:
                self.error = seeking.error

        return loop.create_task(seek())

    def _sought(self, seeking: "asyncio.Task[Found]") -> None:
        if seeking.cancelled():
            return
        if seeking.exception() is None:
            if self._woken is not None:
                _wake(self._woken)
        elif self._seeking is seeking:
            self._seeking = None  # no other server takes the session; the silent one may still come back

    def _stop_seeking(self) -> None:
        """Stop the search, because the server answers after all or the session is over."""
        self.silent_since_s = None
        seeking, self._seeking = self._seeking, None
        if seeking is None:
            return
        if not seeking.done():
            seeking.cancel()
        elif not seeking.cancelled() and seeking.exception() is None:
            seeking.result().call.cancel()


def _wake(woken: "asyncio.Future[None]") -> None:
    if not woken.done():
        woken.set_result(None)
