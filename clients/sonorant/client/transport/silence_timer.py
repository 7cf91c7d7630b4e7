"""Notices that a server has become silent while the client is waiting for a response."""

import asyncio
from collections.abc import Callable

from sonorant.client.transport.silence_limits import SilenceLimits

LATE_S = 0.05  # if the timer fires later than this, this process was stalled, not the server


class SilenceTimer:
    """Calls `on_silence` each time the server has been silent for too long.

    A response only changes `_reading_since_s`. The timer is not set again until it fires, so a response costs no more
    than reading the clock.
    """

    def __init__(
        self,
        limits: SilenceLimits,
        is_due: Callable[[], bool],
        on_silence: Callable[[], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`is_due` returns whether the server still has something to send."""
        self._limits = limits
        self._is_due = is_due
        self._on_silence = on_silence
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._reading_since_s: float | None = None  # None: nobody reads, so silence does not count
        self._due_since_s = 0.0

    def reading_started(self) -> None:
        self._reading_since_s = self._loop.time()

    def reading_ended(self) -> None:
        self._reading_since_s = None

    def expect_response(self) -> None:
        """A response is due from now on."""
        self._due_since_s = self._loop.time()
        if self._timer is None:
            self._set(self._limits.give_up_at_s(self._due_since_s, self._due_since_s))

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, when_s: float) -> None:
        self._timer = self._loop.call_at(when_s, self._check, when_s)

    def _check(self, when_s: float) -> None:
        self._timer = None
        if not self._is_due():
            return
        now_s = self._loop.time()
        since_s = now_s if self._reading_since_s is None else max(self._reading_since_s, self._due_since_s)
        give_up_at_s = self._limits.give_up_at_s(since_s, now_s)
        late_s = now_s - when_s
        if give_up_at_s > now_s:
            self._set(give_up_at_s)
        elif late_s > LATE_S:
            self._set(now_s + late_s)  # time to read what came while this process was stalled
        else:
            self._due_since_s = now_s
            self._on_silence()
            self._set(self._limits.give_up_at_s(now_s, now_s))
