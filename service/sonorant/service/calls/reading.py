"""Limits how many messages are read from all calls in one turn of the event loop, with all callers taking turns.

A message costs gRPC and its session about a tenth of a millisecond, however short it is. A client that writes without a
pause in hundreds of sessions has one waiting in each, and whatever others wait for comes behind all of these. So a call
asks here before it reads its next message. While there are few messages, nobody waits.
"""

import asyncio
from collections import deque

PER_TURN = 8  # nearly a millisecond

_Waiting = deque["asyncio.Future[None]"]


class Reading:
    """Belongs to an event loop."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Waiting] = {}  # by caller; the one who has waited longest is first
        self._num_left = PER_TURN  # messages that may be read before the next look

    async def enter(self, who: str) -> None:
        """Wait until this caller may read another message."""
        if self._num_left:
            self._take()
            return
        future = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(who, deque()).append(future)
        await future

    def _take(self) -> None:
        self._num_left -= 1
        if not self._num_left:  # not each turn, as one that has nothing else to do costs as much as a message
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self._num_left = PER_TURN
        while self._num_left and self._waiting:
            who, waiting = next(iter(self._waiting.items()))
            del self._waiting[who]
            future = waiting.popleft()
            if waiting:
                self._waiting[who] = waiting
            if not future.done():  # done: its call has ended
                future.set_result(None)
                self._take()
