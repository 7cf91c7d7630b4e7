"""Reads a session's responses. If its server is silent for too long, looks for another one in the meantime."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import grpc

from sonorant.client.transport.connections import Connections
from sonorant.client.transport.server_search import AcceptedCall, Connect, ServerSearch
from sonorant.client.transport.silence_limits import SilenceLimits
from sonorant.client.transport.silence_timer import SilenceTimer
from sonorant.tts.v1.speak_pb2 import SessionStarted


async def read_or_cancel(call: Any) -> Any:
    """Read a response. If this is cancelled, cancel the call and not gRPC's reading: that would keep for ever a message
    that comes in at this moment (grpcio 1.83)."""
    reading = asyncio.ensure_future(call.read())
    try:
        return await asyncio.shield(reading)
    except asyncio.CancelledError:
        call.cancel()
        raise


class ResponseReader:
    """Reads one call at a time. A silent call stays open during the search for another server. The session continues
    with whichever of the two answers first."""

    def __init__(self, connections: Connections, connect: Connect, is_due: Callable[[], bool]) -> None:
        """`connect` makes the call to another server. `is_due` returns whether the server still has something
        to send."""
        self._connections = connections
        self._connect = connect
        self._is_due = is_due
        self._limits = SilenceLimits()
        self._silence_timer: SilenceTimer | None = None  # None: the server has promised no `max_silence_ms`
        self._rate_hz = 0
        self._stub: Any = None
        self._search: asyncio.Task[AcceptedCall] | None = None
        self._woken: asyncio.Future[None] | None = None  # done once there is a response or another server
        self.silent_since_s: float | None = None  # on the monotonic clock: when the current search began, if any
        self.error: grpc.aio.AioRpcError | None = None  # the latest error of a server that could not take the session

    def begin(self, stub: Any, started: SessionStarted) -> None:
        """Begin to read a call over `stub`, which a server has answered with `started`."""
        self._stub = stub
        self._rate_hz = started.audio.sample_rate_hz
        self._limits.max_silence_s = started.max_silence_ms / 1000
        self.silent_since_s = None
        if self._silence_timer is not None:
            self._silence_timer.stop()
        loop = asyncio.get_running_loop()
        self._silence_timer = None
        if started.max_silence_ms:
            self._silence_timer = SilenceTimer(self._limits, self._is_due, self._on_silence, loop)

    def expect_response(self) -> None:
        """An utterance was opened: expect responses from now on."""
        if self._silence_timer is not None:
            self._silence_timer.expect_response()

    def drop_audio(self) -> float:
        """The listener has dropped the audio that was not heard yet. Return how many seconds of it there were."""
        return self._limits.drop_audio(asyncio.get_running_loop().time())

    async def read(self, call: Any) -> Any:
        """Return a response or EOF, or None if the call was silent and another server has taken the session. Raises the
        call's error."""
        if self._silence_timer is None:
            return await read_or_cancel(call)
        loop = asyncio.get_running_loop()
        self._silence_timer.reading_started()
        reading = loop.create_task(call.read())
        self._woken = woken = loop.create_future()
        reading.add_done_callback(lambda _: _wake(woken))
        try:
            await woken
        except asyncio.CancelledError:
            call.cancel()  # see `read_or_cancel`
            raise
        self._silence_timer.reading_ended()
        if not reading.done():
            self._connections.abandon(call, reading)
            return None
        response = reading.result()
        self._stop_search()
        if response is not grpc.aio.EOF and response.HasField("audio") and self._rate_hz:
            self._limits.add_audio(loop.time(), response.audio.num_samples / self._rate_hz)
        return response

    async def next_server(self) -> AcceptedCall:
        """Return the call of another server that has taken the session. Raises an error if another attempt would fail,
        too."""
        if self._search is None:
            self._search = self._start_search(self._connections.stub)
        try:
            return await self._search
        finally:
            self._search = None

    def stop(self) -> None:
        if self._silence_timer is not None:
            self._silence_timer.stop()
        self._stop_search()

    def _on_silence(self) -> None:
        if self._search is None:
            loop = asyncio.get_running_loop()
            self.silent_since_s = time.monotonic()
            self._search = self._start_search(self._connections.switch_from(self._stub))
            self._search.add_done_callback(self._on_search_done)
            self._limits.add_alarm(loop.time())

    def _start_search(self, stub: Any) -> "asyncio.Task[AcceptedCall]":
        loop = asyncio.get_running_loop()
        answer_s = self._limits.max_answer_s(loop.time(), self._connections.fastest_answer_s)
        search = ServerSearch(self._connections, self._connect, answer_s, self._limits.max_calls(loop.time()))

        async def run() -> AcceptedCall:
            try:
                async with self._connections.searches:
                    return await search.run(stub, keep_trying=True)
            finally:
                self.error = search.error

        return loop.create_task(run())

    def _on_search_done(self, search: "asyncio.Task[AcceptedCall]") -> None:
        if search.cancelled():
            return
        if search.exception() is None:
            if self._woken is not None:
                _wake(self._woken)
        elif self._search is search:
            self._search = None  # no other server takes the session; the silent one may still come back

    def _stop_search(self) -> None:
        """Stop the search, because the server has answered after all or the session is over."""
        self.silent_since_s = None
        search, self._search = self._search, None
        if search is None:
            return
        if not search.done():
            search.cancel()
        elif not search.cancelled() and search.exception() is None:
            search.result().call.cancel()


def _wake(woken: "asyncio.Future[None]") -> None:
    if not woken.done():
        woken.set_result(None)
