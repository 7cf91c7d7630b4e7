"""A client's connections to its servers: one, and a second one once a server behind the first is silent.

A frozen server keeps its connection open, and gRPC would send all other calls there, too. The second connection is a
new one, to whichever address answers first. From then on all new calls use it, until one of them is silent in turn.
"""

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sonorant.tts.v1.text_to_speech_service_pb2_grpc import TextToSpeechServiceStub

# How many sessions of one client may search for another server at the same time. The others wait: if the way to all
# servers is broken, a few searches are enough to find that out.
MOST_SEEKING = 64
# An abandoned call stays open for this long, unless its server answers: balancers send new calls to the server that has
# the fewest, which would be the frozen one.
LINGER_S = 10.0


class Lines:
    def __init__(self, open_channel: Callable[[bool], Any]) -> None:
        """`open_channel` opens a channel; its argument says whether it is the second one."""
        self._open_channel = open_channel
        self.channels: list[Any] = [open_channel(False)]
        self._stubs: list[Any] = [TextToSpeechServiceStub(self.channels[0])]
        self._current = 0
        self.quickest_s = math.inf  # the shortest time from the beginning of a call until its server took it
        self._left: set[asyncio.Task[None]] = set()
        self.seeking = asyncio.Semaphore(MOST_SEEKING)

    @property
    def stub(self) -> Any:
        """The stub for the next call."""
        return self._stubs[self._current]

    def other_than(self, stub: Any) -> Any:
        """Return the stub for the next calls, after a call over `stub` was silent."""
        if stub is self.stub:
            if len(self._stubs) == 1:
                self.channels.append(self._open_channel(True))
                self._stubs.append(TextToSpeechServiceStub(self.channels[1]))
            self._current = 1 - self._current
        return self.stub

    def answered(self, stub: Any, took_s: float) -> None:
        """Use `stub` for the next calls, because a server has taken a call over it after `took_s`."""
        self.quickest_s = min(self.quickest_s, took_s)
        self._current = self._stubs.index(stub)

    def leave(self, call: Any, reading: "asyncio.Future[Any]") -> None:
        """Abandon a silent call; `reading` is the task that waits for its next response."""
        task = asyncio.get_running_loop().create_task(_linger(call, reading))
        self._left.add(task)
        task.add_done_callback(self._left.discard)

    async def close(self) -> None:
        for task in self._left:
            task.cancel()
        for channel in self.channels:
            await channel.close()


async def _linger(call: Any, reading: "asyncio.Future[Any]") -> None:
    try:
        await asyncio.wait((reading,), timeout=LINGER_S)
    finally:
        call.cancel()
        reading.cancel()
    with suppress(Exception, asyncio.CancelledError):  # nobody waits for its outcome any more
        await reading
