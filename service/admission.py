"""Who may come in: a permit for each synthesis RPC, none while draining. One owner on one event loop."""

import asyncio
from collections import Counter
from collections.abc import Callable

from service.api_keys import Caller
from service.errors import Draining, LimitReached


class Admission:
    def __init__(self, max_sessions: int) -> None:
        self.max_sessions = max_sessions
        self.active_sessions = 0
        self._of_caller: Counter[str] = Counter()
        self._draining = False
        self._idle = asyncio.Event()
        self._idle.set()

    def limit(self, caller: Caller) -> int:
        """How many sessions this caller may have at the same time, if nobody else has any."""
        return self.max_sessions if caller.max_sessions is None else min(self.max_sessions, caller.max_sessions)

    def enter(self, caller: Caller) -> Callable[[object], None]:
        """Take a place; the returned function gives it back, and takes the finished call's task."""
        if self._draining:
            raise Draining("the server is draining and takes nothing new; connect to another one, or try again later")
        if caller.max_sessions is not None and self._of_caller[caller.name] >= caller.max_sessions:
            raise LimitReached(
                "sessions of this key", f"all {caller.max_sessions} sessions of this API key are in use; end one first"
            )
        if self.active_sessions >= self.max_sessions:
            raise LimitReached("sessions", f"all {self.max_sessions} sessions are taken; try again later")
        self.active_sessions += 1
        self._of_caller[caller.name] += 1
        self._idle.clear()

        def leave(_call: object) -> None:
            self.active_sessions -= 1
            self._of_caller[caller.name] -= 1
            if self.active_sessions == 0:
                self._of_caller.clear()  # names that are no longer in the file go with it
                self._idle.set()

        return leave

    async def drain(self, grace_s: float) -> bool:
        """Take nothing new and wait for those inside; False if some were still there after `grace_s`."""
        self._draining = True
        try:
            async with asyncio.timeout(grace_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True
