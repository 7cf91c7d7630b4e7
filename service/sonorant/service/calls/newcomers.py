"""Calls that wait to be begun: a few per turn of the event loop, and of everybody who calls one after another.

What a call costs, it costs in its first moments. Without an order of their own a hundred calls of one client stand
before the first of everyone else, and a burst of them before audio that is due.
"""

import asyncio
from collections import deque

from sonorant.service.errors import LimitReached

PER_TURN = 4
MAX_WAITING = 5000

_Waiting = deque["asyncio.Future[None]"]


def host_of(peer: str) -> str:
    """Of gRPC's "ipv4:10.0.0.3:50312", without the port: one machine, or the proxy in front of several."""
    return peer.rpartition(":")[0]


class Newcomers:
    """Belongs to an event loop."""

    def __init__(self) -> None:
        self._of_host: dict[str, dict[str, _Waiting]] = {}  # by connection; the first of each is next
        self._num_waiting = 0
        self._num_left = PER_TURN  # who may still come in, in this turn
        self._turns = False  # whether `_turn` is due

    async def enter(self, peer: str) -> None:
        """Wait for this call's turn. Raises LimitReached."""
        loop = asyncio.get_running_loop()
        if not self._turns:
            self._turns = True
            loop.call_soon(self._turn)
        if not self._num_waiting and self._num_left:
            self._num_left -= 1
            return
        if self._num_waiting >= MAX_WAITING:
            raise LimitReached("calls", f"{MAX_WAITING} calls wait to be begun; try again later")
        future = loop.create_future()
        connections = self._of_host.setdefault(host_of(peer), {})
        connections.setdefault(peer, deque()).append(future)
        self._num_waiting += 1
        await future

    def _turn(self) -> None:
        self._num_left = PER_TURN
        while self._num_waiting and self._num_left:
            future = self._next()
            if not future.done():  # it may have been cancelled
                future.set_result(None)
                self._num_left -= 1
        self._turns = self._num_left < PER_TURN
        if self._turns:
            asyncio.get_running_loop().call_soon(self._turn)

    def _next(self) -> "asyncio.Future[None]":
        """Of the host, and there of the connection, that has waited longest for a turn."""
        host = next(iter(self._of_host))
        connections = self._of_host.pop(host)
        peer = next(iter(connections))
        waiting = connections.pop(peer)
        future = waiting.popleft()
        self._num_waiting -= 1
        if waiting:
            connections[peer] = waiting
        if connections:
            self._of_host[host] = connections
        return future
