"""Limits how many messages a second are read from all calls, with all callers taking turns.

A message costs gRPC and its session about a tenth of a millisecond, however short it is. A client that writes without a
pause in hundreds of sessions has one waiting in each, and whatever others wait for comes behind all of these. So a call
asks here before it reads its next message. While there are few messages, nobody waits.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable

PER_S = 5000  # about half of the event loop's time
AT_ONCE = 128  # after a pause: about a hundredth of a second
WAIT_S = 0.001  # between looks while some wait

_Waiting = deque["asyncio.Future[None]"]


class Reading:
    """Belongs to an event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: dict[str, _Waiting] = {}  # by caller; the one who has waited longest is first
        self._num_left = float(AT_ONCE)  # messages that may be read at once
        self._counted_s = clock()  # until when `_num_left` has grown
        self._timer: asyncio.TimerHandle | None = None

    async def enter(self, who: str) -> None:
        """Wait until this caller may read another message."""
        if not self._waiting:
            self._grow()
            if self._num_left >= 1:
                self._num_left -= 1
                return
        future = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(who, deque()).append(future)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WAIT_S, self._let_in)
        await future

    def _grow(self) -> None:
        now_s = self._clock()
        self._num_left = min(AT_ONCE, self._num_left + (now_s - self._counted_s) * PER_S)
        self._counted_s = now_s

    def _let_in(self) -> None:
        self._timer = None
        self._grow()
        while self._num_left >= 1 and self._waiting:
            who, waiting = next(iter(self._waiting.items()))
            del self._waiting[who]
            future = waiting.popleft()
            if waiting:
                self._waiting[who] = waiting
            if not future.done():  # done: its call has ended
                future.set_result(None)
                self._num_left -= 1
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later(WAIT_S, self._let_in)
