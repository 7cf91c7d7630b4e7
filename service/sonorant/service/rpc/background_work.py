"""Runs work that is not urgent in threads: one piece at a time, with a rest after each.

A thread that computes without rests takes a core from the workers, and the interpreter from all calls: where cores are
scarce, the system may suspend it while it holds the interpreter's lock, and all calls wait until it runs again.
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

REST = 4.0  # as a multiple of the time that the work took: at most a fifth of a core


class BackgroundWork:
    def __init__(self) -> None:
        self._one = asyncio.Lock()
        self._rests_until_s = 0.0

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None, None]:
        async with self._one:
            while (wait_s := self._rests_until_s - time.monotonic()) > 0:  # noqa: ASYNC110  sleep may end early
                await asyncio.sleep(wait_s)
            start_s = time.monotonic()
            try:
                yield
            finally:
                now_s = time.monotonic()
                self._rests_until_s = now_s + REST * (now_s - start_s)
