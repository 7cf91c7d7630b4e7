"""Admission: a permit for each RPC that causes work, and none while draining. Belongs to one event loop."""

import asyncio
from collections.abc import Callable

from sonorant.service.access.api_keys import Caller
from sonorant.service.access.places import Places
from sonorant.service.errors import Draining


class Admission:
    def __init__(self, max_sessions: int, num_callers: Callable[[], int] = lambda: 1) -> None:
        """`num_callers`: see `Places`."""
        self._places = Places("sessions", max_sessions, num_callers)
        self._draining = False
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def active_sessions(self) -> int:
        return self._places.num_taken

    def limit(self, caller: Caller) -> int:
        """Return how many sessions this caller may have at the same time while nobody else has any."""
        return self._places.limit(caller, caller.max_sessions)

    def enter(self, caller: Caller, *, resuming: bool = False) -> Callable[[object], None]:
        """Take a place and return the function that gives it back. That function is given the finished call's task.

        `resuming`: the call continues what another server began and may use the reserve. Raises Draining, LimitReached.
        """
        if self._draining:
            raise Draining("the server is draining and takes nothing new; connect to another one, or try again later")
        give_back = self._places.enter(caller, caller.max_sessions, resuming=resuming)
        self._idle.clear()

        def leave(_call: object) -> None:
            give_back()
            if self.active_sessions == 0:
                self._idle.set()

        return leave

    async def drain(self, grace_s: float) -> bool:
        """Refuse new calls and wait for the running ones. Return False if some still run after `grace_s`."""
        self._draining = True
        try:
            async with asyncio.timeout(grace_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True
