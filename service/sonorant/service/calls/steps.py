"""Shares turns of the event loop out among callers while there is more to do than fits into one.

Left to itself, the loop does all that is due, in the order in which it became due. If a client has a thousand calls and
each has a step to do, whatever others wait for comes behind all of these, and a call takes several steps. So once many
events have come from gRPC at the same time, steps of calls wait here, and callers take turns with them, for so long in
each turn of the loop. When none waits any more, they are left to the loop again and cost nothing.

Only steps of tasks wait. Other callbacks of the loop run at once: they may be for all callers.
"""

import asyncio
import time
from collections.abc import Callable
from contextvars import Context
from typing import Any

from sonorant.engine import FairQueue

PER_TURN_S = 0.004  # of processor time
MANY = 16  # events at the same time

_Step = tuple[Callable[..., object], tuple[Any, ...], Context]


class Steps:
    """Belongs to an event loop, and stands before its `call_soon` while steps wait."""

    def __init__(self, who: Callable[[Context], str], clock: Callable[[], float] = time.thread_time) -> None:
        """`who`: the caller for whom a context's code runs; "" if it is nobody's. `clock`: processor time of the
        loop's thread, so that time spent waiting for a core is not charged."""
        self._who = who
        self._clock = clock
        self._waiting = FairQueue[_Step]()
        self._loop: Any = None  # while we stand before it
        self._soon: Callable[..., Any]  # its own `call_soon`

    def on_events(self, num_events: int) -> None:
        """Note that so many events have come, each of which may let a call take a step."""
        if num_events >= MANY and self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._soon = self._loop.call_soon
            self._loop.call_soon = self._call_soon
            self._soon(self._turn)

    def _call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Any:
        is_step = isinstance(getattr(callback, "__self__", None), asyncio.Task)
        if is_step and context is not None and (who := self._who(context)):
            self._waiting.push((callback, args, context), who)
            return None  # tasks do not look at it
        return self._soon(callback, *args, context=context)

    def _turn(self) -> None:
        until_s = self._clock() + PER_TURN_S
        try:
            while self._waiting and self._clock() < until_s:
                step, args, context = self._waiting.popleft()
                context.run(step, *args)
        finally:
            if self._waiting:
                self._soon(self._turn)
            else:
                del self._loop.call_soon
                del self._soon
                self._loop = None
