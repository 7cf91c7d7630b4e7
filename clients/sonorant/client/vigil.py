"""Notices that a server has become silent, while a response is due and somebody waits for it."""

import asyncio
from collections.abc import Callable

from sonorant.client.patience import Patience

LATE_S = 0.05  # if a timer is later than this, this process stood still, not the server


class Vigil:
    """Watches with one timer that is set again only when it fires, so a response costs no more than a look at the
    clock."""

    def __init__(
        self,
        patience: Patience,
        is_due: Callable[[], bool],
        on_silence: Callable[[], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`is_due` tells whether the server has promised to send something."""
        self._patience = patience
        self._is_due = is_due
        self._on_silence = on_silence
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._reading_since_s: float | None = None  # None: nobody listens, so nothing can be heard
        self._due_since_s = 0.0

    def reads(self) -> None:
        self._reading_since_s = self._loop.time()

    def heard(self) -> None:
        self._reading_since_s = None

    def begins(self) -> None:
        """A response is due from now on."""
        self._due_since_s = self._loop.time()
        if self._timer is None:
            self._look_at(self._patience.until_s(self._due_since_s, self._due_since_s))

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_at(self, when_s: float) -> None:
        self._timer = self._loop.call_at(when_s, self._look, when_s)

    def _look(self, when_s: float) -> None:
        self._timer = None
        if not self._is_due():
            return
        now_s = self._loop.time()
        since_s = now_s if self._reading_since_s is None else max(self._reading_since_s, self._due_since_s)
        until_s = self._patience.until_s(since_s, now_s)
        late_s = now_s - when_s
        if until_s > now_s:
            self._look_at(until_s)
        elif late_s > LATE_S:
            self._look_at(now_s + late_s)  # first read what came while this process stood still
        else:
            self._due_since_s = now_s
            self._on_silence()
            self._look_at(self._patience.until_s(now_s, now_s))
