"""The queue of calls that have not begun: a few begin per turn of the event loop, with all callers taking turns.

Most of a call's cost falls at its beginning. Without this queue, a hundred calls of one client would come before the
first call of anyone else, and a burst of thousands before audio that is due.

A caller is an API key or, without keys, a host. Each of its known connections has its own line. A connection is known
once a call on it has succeeded or lasted a while; all others share one line, or a client could get ahead by
reconnecting. Nothing is allocated for a call before its turn, so a call cancelled earlier costs little. A line whose
calls are cancelled as soon as they have begun is slowed down.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable

from sonorant.service.calls import resets
from sonorant.service.calls.resets import Resets
from sonorant.service.errors import LimitReached

PER_TURN = 16  # about 10 ms of processor time; with fewer, calls would wait for many turns, and each turn has a cost
MAX_WAITING = 5000
MAX_KNOWN = 10_000  # connections
LOOK_S = 0.01  # between looks at the queue while all lines in it are slowed down
NEW = ""  # the line of unknown connections

_Waiting = deque["asyncio.Future[None]"]


def host_of(peer: str) -> str:
    """Return gRPC's "ipv4:10.0.0.3:50312" without the port: one machine, or the proxy in front of several."""
    return peer.rpartition(":")[0]


class CallQueue:
    """Belongs to an event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: dict[str, dict[str, _Waiting]] = {}  # lines by caller; the first of each is next
        self._num_waiting = 0  # includes cancelled calls until their turn comes
        self._num_left = PER_TURN  # how many calls may still begin in this turn
        self._soon = False  # whether `_turn` is scheduled
        self._later: asyncio.TimerHandle | None = None
        self._known: dict[str, None] = {}  # connections; the most recently useful is last
        self._resets = Resets()

    async def enter(self, who: str, peer: str) -> "Entered":
        """Wait for this call's turn. Raises LimitReached."""
        loop = asyncio.get_running_loop()
        line = peer if peer in self._known else NEW
        if not self._soon:
            self._soon = True
            loop.call_soon(self._turn)
        if self._num_left and not self._resets.are_many((who, line), self._clock()):
            self._num_left -= 1
        else:
            future = loop.create_future()
            self._waiting.setdefault(who, {}).setdefault(line, deque()).append(future)
            self._num_waiting += 1
            if self._num_waiting > MAX_WAITING:
                self._refuse()
            await future
        return Entered(self, who, peer, line, self._clock())

    def ended(self, call: "Entered", ok: bool, cancelled: bool) -> None:
        now_s = self._clock()
        if ok or now_s - call.begun_s >= resets.EARLY_S:
            self._known.pop(call.peer, None)
            self._known[call.peer] = None
            if len(self._known) > MAX_KNOWN:
                del self._known[next(iter(self._known))]
        elif cancelled:
            self._resets.add((call.who, call.line), now_s)

    def _turn(self) -> None:
        loop = asyncio.get_running_loop()
        if self._later is not None:
            self._later.cancel()
            self._later = None
        self._num_left = PER_TURN
        while self._num_left and (future := self._next()) is not None:
            future.set_result(None)
            self._num_left -= 1
        self._soon = self._num_left < PER_TURN
        if self._soon:
            loop.call_soon(self._turn)
        elif self._num_waiting:
            self._later = loop.call_later(LOOK_S, self._turn)

    def _next(self) -> "asyncio.Future[None] | None":
        """Take the next call: of the caller, and of its line, that has waited longest and is not slowed down."""
        now_s = self._clock()
        for who, lines in list(self._waiting.items()):
            for line, waiting in list(lines.items()):
                while waiting and waiting[0].done():  # cancelled
                    waiting.popleft()
                    self._num_waiting -= 1
                if waiting and self._resets.are_many((who, line), now_s):
                    continue
                future = waiting.popleft() if waiting else None
                del lines[line]
                if waiting:
                    lines[line] = waiting
                self._waiting.pop(who, None)
                if lines:
                    self._waiting[who] = lines
                if future is not None:
                    self._num_waiting -= 1
                    return future
        return None

    def _refuse(self) -> None:
        """Refuse the last call of the longest line."""
        future = max((each for lines in self._waiting.values() for each in lines.values()), key=len).pop()
        self._num_waiting -= 1
        if not future.done():
            what = f"{MAX_WAITING} calls wait to be begun, most of them yours; try again later"
            future.set_exception(LimitReached("calls", what, retry_s=1.0))


class Entered:
    """A call that has begun."""

    __slots__ = ("_call_queue", "begun_s", "line", "peer", "who")

    def __init__(self, call_queue: CallQueue, who: str, peer: str, line: str, begun_s: float) -> None:
        self._call_queue = call_queue
        self.who = who
        self.peer = peer
        self.line = line
        self.begun_s = begun_s

    def end(self, *, ok: bool, cancelled: bool) -> None:
        self._call_queue.ended(self, ok, cancelled)
