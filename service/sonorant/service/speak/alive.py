"""Signs of life: a session whose client asked for them says something at least so often while anything is open.

All sessions are looked at together, at times when audio goes out anyway: a timer for each would wake the event loop for
nothing, several times a second while audio flows.
"""

import asyncio
import math
from collections.abc import Callable

from sonorant.service.speak.outbox import Outbox
from sonorant.tts.v1 import speak_pb2

LOOK_S = 0.06  # six ticks of the pacer, and less than one frame


class Quiet:
    """What is known of one session."""

    __slots__ = ("is_open", "latest_s", "outbox", "since_s")

    def __init__(
        self, outbox: Outbox[speak_pb2.SpeakResponse], max_silence_s: float, is_open: Callable[[], bool]
    ) -> None:
        self.outbox = outbox
        self.latest_s = max_silence_s - LOOK_S  # the next look would be too late
        self.is_open = is_open
        self.since_s = 0.0  # from when on silence counts: nothing was open before


class SignsOfLife:
    """One timer for all, which runs only while somebody has something open."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop
        self._followed: set[Quiet] = set()
        self._timer: asyncio.TimerHandle | None = None

    def follow(self, quiet: Quiet) -> None:
        """Something may have been opened. Followed until nothing is."""
        if quiet in self._followed:
            return
        self._loop = self._loop or asyncio.get_running_loop()
        quiet.since_s = self._loop.time()
        self._followed.add(quiet)
        if self._timer is None:
            self._look_soon(self._loop)

    def forget(self, quiet: Quiet) -> None:
        self._followed.discard(quiet)

    def _look_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_at((math.floor(loop.time() / LOOK_S) + 1) * LOOK_S, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now_s = loop.time()
        over = []
        for quiet in self._followed:
            if not quiet.is_open():
                over.append(quiet)
                continue
            since_s = quiet.outbox.quiet_since_s  # None: it is writing, and a client that does not read gets no sign
            if since_s is not None and now_s - max(since_s, quiet.since_s) > quiet.latest_s:
                quiet.outbox.post(speak_pb2.SpeakResponse(alive=speak_pb2.Alive()))
        self._followed.difference_update(over)
        self._timer = None
        if self._followed:
            self._look_soon(loop)
