"""Keepalives: if the client asked for them, the server is never silent for longer than that while anything is open.

One timer serves all sessions: a timer for each would wake the event loop for nothing, several times a second while
audio flows. A session is looked at only when it might have been silent for too long, so responses written meanwhile
cost nothing.
"""

import asyncio
import math
from collections.abc import Callable
from typing import Any

from sonorant.service.pacing.outbox import Outbox

LOOK_S = 0.06  # six ticks of the pacer, and less than one frame


class Keepalive:
    """The state of one session, or of one SynthesizeStream call, that wants keepalives."""

    __slots__ = ("is_open", "latest_s", "look", "outbox", "sign", "since_s")

    def __init__(
        self, outbox: Outbox[Any], sign: Callable[[], Any], max_silence_s: float, is_open: Callable[[], bool]
    ) -> None:
        """`sign`: makes a keepalive, a response without other content. `is_open`: whether silence counts."""
        self.outbox = outbox
        self.sign = sign
        self.latest_s = max_silence_s - LOOK_S  # the next look would be too late
        self.is_open = is_open
        self.since_s = 0.0  # silence counts from here on, as nothing was open before
        self.look: int | None = None  # number of the look at which its turn is; None: it is not followed


class Keepalives:
    """One timer for all. It runs only while somebody has something open. Looks are numbered by the loop's clock."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop
        self._due: dict[int, set[Keepalive]] = {}  # by look
        self._next: int | None = None  # look
        self._timer: asyncio.TimerHandle | None = None

    def follow(self, keepalive: Keepalive) -> None:
        """Follow a session in which something may be open, until nothing is."""
        if keepalive.look is not None:
            return
        self._loop = self._loop or asyncio.get_running_loop()
        keepalive.since_s = self._loop.time()
        self._file(keepalive, _last_look_in_time(keepalive, keepalive.since_s))
        self._look_in_time(self._loop)

    def forget(self, keepalive: Keepalive) -> None:
        if keepalive.look is None or self._loop is None:
            return
        due = self._due[keepalive.look]
        due.discard(keepalive)
        if not due:
            del self._due[keepalive.look]
        keepalive.look = None
        self._look_in_time(self._loop)

    def _file(self, keepalive: Keepalive, look: int) -> None:
        keepalive.look = look
        self._due.setdefault(look, set()).add(keepalive)

    def _look_in_time(self, loop: asyncio.AbstractEventLoop) -> None:
        first = min(self._due, default=None)
        if first == self._next:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._next = first
        self._timer = None if first is None else loop.call_at(first * LOOK_S, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now_s, self._next, self._timer = loop.time(), None, None
        for look in [look for look in self._due if look * LOOK_S <= now_s]:
            for keepalive in self._due.pop(look):
                self._look_at(keepalive, look, now_s)
        self._look_in_time(loop)

    def _look_at(self, keepalive: Keepalive, look: int, now_s: float) -> None:
        if not keepalive.is_open():
            keepalive.look = None
            return
        since_s = keepalive.outbox.quiet_since_s
        if since_s is None:  # it is writing, and a client that does not read gets no keepalive
            since_s = now_s
        elif _last_look_in_time(keepalive, since_s) <= look:
            keepalive.outbox.post(keepalive.sign())
            since_s = now_s
        self._file(keepalive, _last_look_in_time(keepalive, since_s))


def _last_look_in_time(keepalive: Keepalive, since_s: float) -> int:
    """Return the last look that is in time if the session says nothing from `since_s` on."""
    return math.floor((max(since_s, keepalive.since_s) + keepalive.latest_s) / LOOK_S) + 1
