"""Ends calls whose client does not read the responses: after LIMIT_S, or DRAINING_LIMIT_S while the server drains.

gRPC waits without limit until a client has room for a response. With a closed HTTP/2 window that never happens, and the
call would keep its place, its session and its streams for ever.
"""

import asyncio
import time
from typing import Protocol

from sonorant.service.errors import SlowReader

LIMIT_S = 60.0
DRAINING_LIMIT_S = 5.0
LOOK_S = 1.0  # between looks


class WaitingWriter(Protocol):
    waits_since_s: float | None  # monotonic: since when gRPC has held a response that the client has not taken

    def give_up(self, error: SlowReader) -> None: ...


class Stalled:
    def __init__(self) -> None:
        self._writers: set[WaitingWriter] = set()
        self._draining = False

    def follow(self, writer: WaitingWriter) -> None:
        self._writers.add(writer)

    def forget(self, writer: WaitingWriter) -> None:
        self._writers.discard(writer)

    def drain(self) -> None:
        """Use the shorter limit from now on."""
        self._draining = True

    async def watch(self) -> None:
        """End stalled calls, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            limit_s = DRAINING_LIMIT_S if self._draining else LIMIT_S
            latest_s = time.monotonic() - limit_s
            error = SlowReader(f"nothing was read for {limit_s:g} s; read faster, or cancel what is not wanted")
            for writer in [each for each in self._writers if each.waits_since_s is not None]:
                if writer.waits_since_s is not None and writer.waits_since_s < latest_s:
                    writer.give_up(error)
