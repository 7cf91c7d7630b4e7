"""A client's connections to its servers: one, and a second one after a server on the first has become silent.

A frozen server keeps its connection open, and gRPC would send all other calls there, too. The second connection goes to
whichever address answers first. From then on all new calls use it, until one of them is silent. Then new calls use the
first connection again, and so on.
"""

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sonorant.tts.v1.text_to_speech_service_pb2_grpc import TextToSpeechServiceStub

# How many sessions of one client may search for another server at the same time. The others wait: if no server can be
# reached, a few searches are enough to find that out.
MAX_SEARCHES = 64
# An abandoned call stays open for this long, unless its server answers. Balancers send new calls to the server with the
# fewest open calls. If the client closed its calls to a frozen server at once, that server would get all new ones.
LINGER_S = 10.0


class ClientClosed(RuntimeError):
    def __init__(self) -> None:
        super().__init__("this client is closed; make another one")


class Connections:
    """The two connections of one client, and which of them new calls use."""

    def __init__(self, open_channel: Callable[[bool], Any]) -> None:
        """`open_channel` opens a channel; its argument says whether it is the second one."""
        self._open_channel = open_channel
        self._channels: list[Any] = []  # opened with the first call: grpc.aio ties a channel to a running event loop
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False
        self._stubs: list[Any] = []
        self._current = 0  # index of the connection for new calls
        self.fastest_answer_s = math.inf  # the shortest time from the beginning of a call until its server took it
        self._abandoned: set[asyncio.Task[None]] = set()
        self.searches = asyncio.Semaphore(MAX_SEARCHES)  # held while a session searches for a server

    @property
    def stub(self) -> Any:
        """The stub for the next call. Raises RuntimeError in another event loop than the first call, or once closed."""
        self._open()
        return self._stubs[self._current]

    @property
    def first_channel(self) -> Any:
        """A channel for other services. Raises RuntimeError as `stub` does."""
        self._open()
        return self._channels[0]

    def _open(self) -> None:
        if self._is_closed:
            raise ClientClosed
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
            self._channels.append(self._open_channel(False))
            self._stubs.append(TextToSpeechServiceStub(self._channels[0]))
        if self._loop is not loop:
            raise RuntimeError(
                "this client was used in another event loop; make one for each asyncio.run(), with `async with "
                "SpeechClient(...)` inside of it"
            )

    def switch_from(self, stub: Any) -> Any:
        """Return the stub for the next calls, after a call over `stub` was silent: the other one, unless the client has
        switched already."""
        if stub is self.stub:
            if len(self._stubs) == 1:
                self._channels.append(self._open_channel(True))
                self._stubs.append(TextToSpeechServiceStub(self._channels[1]))
            self._current = 1 - self._current
        return self.stub

    def answered(self, stub: Any, took_s: float) -> None:
        """Use `stub` for the next calls, because a server has taken a call over it after `took_s`."""
        self.fastest_answer_s = min(self.fastest_answer_s, took_s)
        self._current = self._stubs.index(stub)

    def abandon(self, call: Any, reading: "asyncio.Future[Any]") -> None:
        """Give up a silent call, but keep it open for LINGER_S; `reading` waits for its next response."""
        task = asyncio.get_running_loop().create_task(_linger(call, reading))
        self._abandoned.add(task)
        task.add_done_callback(self._abandoned.discard)

    async def close(self) -> None:
        self._is_closed = True
        for task in self._abandoned:
            task.cancel()
        for channel in self._channels:
            await channel.close()


async def _linger(call: Any, reading: "asyncio.Future[Any]") -> None:
    try:
        await asyncio.wait((reading,), timeout=LINGER_S)
    finally:
        call.cancel()
    with suppress(Exception, asyncio.CancelledError):  # nobody waits for the result any more
        await reading
