"""Sessions: a permit for each RPC that causes work, and none while draining. Belongs to one event loop."""

import asyncio
from collections.abc import Callable

from sonorant.service.access.api_keys import Caller
from sonorant.service.admission.ledger import Counted, Ledger
from sonorant.service.admission.permits import Permit, Permits
from sonorant.service.errors import Draining


class Sessions:
    def __init__(self, limit: int, num_callers: Callable[[], int], ledger: Ledger) -> None:
        self.num_active = 0  # of this process
        self._permits = Permits(Counted.SESSIONS, limit, num_callers, ledger)
        self._ledger = ledger
        self._draining = False
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def num_on_host(self) -> int:
        return self._ledger.total(Counted.SESSIONS)

    def num_of(self, caller: Caller) -> int:
        """Return how many sessions this caller has on this host."""
        return self._ledger.held(caller.number, Counted.SESSIONS)

    def limit(self, caller: Caller) -> int:
        """Return how many sessions this caller may have at the same time while nobody else has any."""
        return self._permits.limit(caller, caller.max_sessions)

    def enter(self, caller: Caller, *, resuming: bool = False) -> Permit:
        """Raises Draining, LimitReached. `resuming`: the call continues what another server began; see `Permits`."""
        if self._draining:
            raise Draining("the server is draining and takes nothing new; connect to another one, or try again later")
        permit = self._permits.take(caller, caller.max_sessions, resuming=resuming)
        self.num_active += 1
        self._idle.clear()

        def leave() -> None:
            permit.give_back()
            self.num_active -= 1
            if self.num_active == 0:
                self._idle.set()

        return Permit(leave)

    async def drain(self, grace_s: float) -> bool:
        """Refuse new calls and wait for the running ones. Return False if some still run after `grace_s`."""
        self._draining = True
        try:
            async with asyncio.timeout(grace_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True
