"""The ways of one client to its servers: a connection, and a second one if a server behind the first falls silent.

A frozen server holds its connection, and gRPC sends everything else there, too. The second connection is made afresh,
to whichever address answers first. From then on all new calls take it, until one of them is silent in turn.
"""

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sonorant.tts.v1.text_to_speech_service_pb2_grpc import TextToSpeechServiceStub

# Sessions of one client that look for another server at the same time. Others wait: if it is no server that is gone but
# the way to all of them, few need to find that out.
MOST_SEEKING = 64
# A call that was left stays open for so long, unless its server shows that it lives: balancers send new calls to whom
# has the fewest, which would be the frozen one.
LINGER_S = 10.0


class Lines:
    def __init__(self, open_channel: Callable[[bool], Any]) -> None:
        """`open_channel` is told whether the channel is the second one."""
        self._open_channel = open_channel
        self.channels: list[Any] = [open_channel(False)]
        self._stubs: list[Any] = [TextToSpeechServiceStub(self.channels[0])]
        self._current = 0
        self.quickest_s = math.inf  # from the beginning of a call until its server took it
        self._left: set[asyncio.Task[None]] = set()
        self.seeking = asyncio.Semaphore(MOST_SEEKING)

    @property
    def stub(self) -> Any:
        """For the next call."""
        return self._stubs[self._current]

    def other_than(self, stub: Any) -> Any:
        """For the next calls, since what went over this one is silent."""
        if stub is self.stub:
            if len(self._stubs) == 1:
                self.channels.append(self._open_channel(True))
                self._stubs.append(TextToSpeechServiceStub(self.channels[1]))
            self._current = 1 - self._current
        return self.stub

    def answered(self, stub: Any, took_s: float) -> None:
        """A server has taken a call over it, perhaps while others were tried."""
        self.quickest_s = min(self.quickest_s, took_s)
        self._current = self._stubs.index(stub)

    def leave(self, call: Any, reading: "asyncio.Future[Any]") -> None:
        """Nothing more is wanted of a silent call; `reading`: what waits for it to speak."""
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
    with suppress(Exception, asyncio.CancelledError):  # it is nobody's any more
        await reading
