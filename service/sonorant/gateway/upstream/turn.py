"""Lets other callers have their turn of the event loop while one caller has much to do."""

import asyncio
import time

TURN_S = 0.001


class LoopTurn:
    """The turn of one caller. `end`, between short pieces of work, ends it if it has lasted long enough."""

    def __init__(self) -> None:
        self._until_s = 0.0

    async def end(self) -> None:
        if time.monotonic() > self._until_s:
            await asyncio.sleep(0)
            self._until_s = time.monotonic() + TURN_S
