"""The queue of calls that have not begun: a few begin per turn of the event loop, with all callers taking turns.

Most of a call's cost falls at its beginning. Without this queue, a hundred calls of one client would come before the
first call of anyone else, and a burst of thousands before audio that is due.

A caller is an API key or, without keys, a host. Each of its known clients has its own line: a connection or, if a
gateway or proxy calls on it for many, each of those. A client is known once a call of it has succeeded or lasted a
while; all others share one line, or one could get ahead by reconnecting, or by naming itself anew. Nothing is
allocated for a call before its turn, so a call cancelled earlier costs little. A line whose calls are cancelled as
soon as they have begun is held back.
"""

import asyncio
import time
from collections.abc import Callable

from sonorant.engine import FairQueue
from sonorant.service.calls import resets
from sonorant.service.calls.resets import Resets
from sonorant.service.errors import LimitReached

PER_TURN = 16  # about 10 ms of processor time; with fewer, calls would wait for many turns, and each turn has a cost
MAX_WAITING = 5000
MAX_KNOWN = 10_000  # clients
MAX_NAME_CHARS = 128  # of the client that a gateway or proxy names
NEW = ""  # the line of unknown clients


def host_of(peer: str) -> str:
    """Return gRPC's "ipv4:10.0.0.3:50312" without the port: one machine, or the proxy in front of several."""
    return peer.rpartition(":")[0]


def client_of(peer: str, forwarded_for: str) -> str:
    """Return whose line a call may have. `forwarded_for`: whom a gateway or proxy says that it calls for. Anybody may
    say so, which is why nothing but lines of the same caller depends on it."""
    return f"{peer} {forwarded_for[-MAX_NAME_CHARS:]}"  # proxies append what they know to what their clients say


class CallQueue:
    """Belongs to an event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting = FairQueue[asyncio.Future[None]]()  # a call that was cancelled stays until its turn comes
        self._num_waiting = 0  # here, and held back
        self._num_left = PER_TURN  # how many calls may still begin in this turn
        self._soon = False  # whether `_turn` is scheduled
        self._known: dict[str, None] = {}  # clients; the most recently useful is last
        self._resets = Resets()

    async def enter(self, who: str, client: str) -> "Entered":
        """Wait for this call's turn. Raises LimitReached. `client`: one of the caller's, see `client_of`."""
        line = client if client in self._known else NEW
        if delay_s := self._resets.delay_s((who, line), self._clock()):
            await self._hold_back(who, line, delay_s)
        if not self._soon:
            self._soon = True
            asyncio.get_running_loop().call_soon(self._turn)
        if self._num_left:
            self._num_left -= 1
        else:
            future = asyncio.get_running_loop().create_future()
            self._waiting.push(future, who, line)
            self._num_waiting += 1
            if self._num_waiting > MAX_WAITING:
                self._refuse()
            await future
        return Entered(self, who, client, line, self._clock())

    def ended(self, call: "Entered", ok: bool, cancelled: bool) -> None:
        now_s = self._clock()
        if ok or now_s - call.begun_s >= resets.EARLY_S:
            self._known.pop(call.client, None)
            self._known[call.client] = None
            if len(self._known) > MAX_KNOWN:
                del self._known[next(iter(self._known))]
        elif cancelled:
            self._resets.add((call.who, call.line), now_s)

    async def _hold_back(self, who: str, line: str, delay_s: float) -> None:
        if self._num_waiting >= MAX_WAITING:
            raise _too_many()
        self._num_waiting += 1
        try:
            while delay_s:
                await asyncio.sleep(delay_s)
                delay_s = self._resets.delay_s((who, line), self._clock())
        finally:
            self._num_waiting -= 1

    def _turn(self) -> None:
        self._num_left = PER_TURN
        while self._num_left and self._waiting:
            self._num_waiting -= 1
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                self._num_left -= 1
        self._soon = self._num_left < PER_TURN
        if self._soon:
            asyncio.get_running_loop().call_soon(self._turn)

    def _refuse(self) -> None:
        self._num_waiting -= 1
        future = self._waiting.drop()
        if not future.done():
            future.set_exception(_too_many())


def _too_many() -> LimitReached:
    what = f"{MAX_WAITING} calls wait to be begun, most of them yours; try again later"
    return LimitReached("calls", what, retry_s=1.0)


class Entered:
    """A call that has begun."""

    __slots__ = ("_call_queue", "begun_s", "client", "line", "who")

    def __init__(self, call_queue: CallQueue, who: str, client: str, line: str, begun_s: float) -> None:
        self._call_queue = call_queue
        self.who = who
        self.client = client
        self.line = line
        self.begun_s = begun_s

    def end(self, *, ok: bool, cancelled: bool) -> None:
        self._call_queue.ended(self, ok, cancelled)
