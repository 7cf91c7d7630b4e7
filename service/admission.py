"""Who may come in: a permit for each synthesis RPC, none while draining. One owner on one event loop."""

import asyncio
from collections.abc import Callable

from service.errors import Draining, LimitReached


class Admission:
    def __init__(self, max_sessions: int) -> None:
        self.max_sessions = max_sessions
        self.active_sessions = 0
        self._draining = False
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def draining(self) -> bool:
        return self._draining

    def enter(self) -> Callable[[object], None]:
        """Take a place; the returned function gives it back, and takes the finished call so that gRPC can call it."""
        if self._draining:
            raise Draining("the server is draining and takes nothing new; connect to another one, or try again later")
        if self.active_sessions >= self.max_sessions:
            raise LimitReached("sessions", f"all {self.max_sessions} sessions are taken; try again later")
        self.active_sessions += 1
        self._idle.clear()
        return self._leave

    def _leave(self, _call: object) -> None:
        self.active_sessions -= 1
        if self.active_sessions == 0:
            self._idle.set()

    async def drain(self, grace_s: float) -> bool:
        """Take nothing new and wait for those inside; False if some were still there after `grace_s`."""
        self._draining = True
        try:
            async with asyncio.timeout(grace_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True
