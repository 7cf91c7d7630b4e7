"""Work in threads that nobody is in a hurry for: one at a time, with a rest after each.

A thread that computes without a rest takes a core from those who speak, and the interpreter from everybody: where cores
are scarce it is put aside while it holds the interpreter's lock, and all calls wait until it goes on.
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

REST = 4.0  # times as long as the work took: at most a fifth of a core


class Unhurried:
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
