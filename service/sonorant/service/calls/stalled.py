"""Calls whose client takes nothing of what was sent: each is ended after a while, and sooner while the server drains.

gRPC waits without limit for a client to make room for a response. A client can keep that from ever happening (HTTP/2
lets it close its window), and with the call would stay its place, its session and its streams.
"""

import asyncio
import time
from typing import Protocol

from sonorant.service.errors import SlowReader

LIMIT_S = 60.0
DRAINING_LIMIT_S = 5.0
LOOK_S = 1.0  # how often


class Writer(Protocol):
    waits_since_s: float | None  # on the monotonic clock: when what the client has not taken yet was given to gRPC

    def give_up(self, error: SlowReader) -> None: ...


class Stalled:
    def __init__(self) -> None:
        self._writers: set[Writer] = set()
        self._draining = False

    def follow(self, writer: Writer) -> None:
        self._writers.add(writer)

    def forget(self, writer: Writer) -> None:
        self._writers.discard(writer)

    def drain(self) -> None:
        """Nobody may keep the server for long any more."""
        self._draining = True

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            limit_s = DRAINING_LIMIT_S if self._draining else LIMIT_S
            latest_s = time.monotonic() - limit_s
            error = SlowReader(f"nothing was taken for {limit_s:g} s; read faster, or cancel what is not wanted")
            for writer in [each for each in self._writers if each.waits_since_s is not None]:
                if writer.waits_since_s is not None and writer.waits_since_s < latest_s:
                    writer.give_up(error)
