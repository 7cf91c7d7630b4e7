"""Signs of life: if the client asked for them, the server is never silent for longer than that while anything is open.

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


class Quiet:
    """The state of one session, or of one SynthesizeStream call, that wants signs of life."""

    __slots__ = ("is_open", "latest_s", "look", "outbox", "sign", "since_s")

    def __init__(
        self, outbox: Outbox[Any], sign: Callable[[], Any], max_silence_s: float, is_open: Callable[[], bool]
    ) -> None:
        """`sign`: makes a sign of life, a response without other content. `is_open`: whether silence counts."""
        self.outbox = outbox
        self.sign = sign
        self.latest_s = max_silence_s - LOOK_S  # the next look would be too late
        self.is_open = is_open
        self.since_s = 0.0  # silence counts from here on, as nothing was open before
        self.look: int | None = None  # number of the look at which its turn is; None: it is not followed


class SignsOfLife:
    """One timer for all. It runs only while somebody has something open. Looks are numbered by the loop's clock."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop
        self._due: dict[int, set[Quiet]] = {}  # by look
        self._next: int | None = None  # look
        self._timer: asyncio.TimerHandle | None = None

    def follow(self, quiet: Quiet) -> None:
        """Follow a session in which something may be open, until nothing is."""
        if quiet.look is not None:
            return
        self._loop = self._loop or asyncio.get_running_loop()
        quiet.since_s = self._loop.time()
        self._file(quiet, _last_look_in_time(quiet, quiet.since_s))
        self._look_in_time(self._loop)

    def forget(self, quiet: Quiet) -> None:
        if quiet.look is None or self._loop is None:
            return
        due = self._due[quiet.look]
        due.discard(quiet)
        if not due:
            del self._due[quiet.look]
        quiet.look = None
        self._look_in_time(self._loop)

    def _file(self, quiet: Quiet, look: int) -> None:
        quiet.look = look
        self._due.setdefault(look, set()).add(quiet)

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
            for quiet in self._due.pop(look):
                self._look_at(quiet, look, now_s)
        self._look_in_time(loop)

    def _look_at(self, quiet: Quiet, look: int, now_s: float) -> None:
        if not quiet.is_open():
            quiet.look = None
            return
        since_s = quiet.outbox.quiet_since_s
        if since_s is None:  # it is writing, and a client that does not read gets no sign
            since_s = now_s
        elif _last_look_in_time(quiet, since_s) <= look:
            quiet.outbox.post(quiet.sign())
            since_s = now_s
        self._file(quiet, _last_look_in_time(quiet, since_s))


def _last_look_in_time(quiet: Quiet, since_s: float) -> int:
    """Return the last look that is in time if the session says nothing from `since_s` on."""
    return math.floor((max(since_s, quiet.since_s) + quiet.latest_s) / LOOK_S) + 1
