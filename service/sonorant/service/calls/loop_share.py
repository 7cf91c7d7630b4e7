"""Limits how much of each turn of the event loop goes into what callers send: their texts, and large messages.

Each piece of such work is short. But when many sessions each do one in the same turn, all audio and calls wait for all
of them. So all pieces share one allowance, which is renewed in the next turn once half of it is used. When it is used
up, pieces wait for later turns, taken from the callers in rotation. A piece that overdraws the allowance is paid for by
the next turns, which then do no such work.
"""

import asyncio
import time
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, ParamSpec, TypeVar

from sonorant.engine import FairQueue

P = ParamSpec("P")
T = TypeVar("T")

PER_TURN_S = 0.004  # of processor time


@dataclass(slots=True, eq=False)
class _Piece:
    act: Callable[[], Any]
    context: Context  # of the code that asked for it
    done: "asyncio.Future[Any] | None"  # None: nobody waits for the result


class LoopShare:
    """Belongs to an event loop."""

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        """`clock`: processor time of the loop's thread, so that time spent waiting for a core is not charged."""
        self._clock = clock
        self._waiting = FairQueue[_Piece]()
        self._left_s = PER_TURN_S  # allowance left; below 0: debt of the next turns
        self.is_free = True  # whether a piece may be done at once: something is left, and none waits
        self._soon = False  # whether `_turn` is scheduled

    def of(self, who: str) -> "Part":
        return Part(self, who)

    def queue(self, who: str, act: Callable[[], Any], done: "asyncio.Future[Any] | None" = None) -> None:
        """Do a piece of work for a caller when its turn comes. `done` gets its result, and drops it if cancelled."""
        self._look_soon()
        self.is_free = False
        self._waiting.push(_Piece(act, copy_context(), done), who)

    def timed(self, act: Callable[[], T]) -> T:
        """Do a piece of work now, at the cost of this turn."""
        start_s = self._clock()
        try:
            return act()
        finally:
            self._left_s -= self._clock() - start_s
            self.is_free = self.is_free and self._left_s > 0
            if self._left_s < PER_TURN_S / 2:  # not sooner, as another turn of an idle loop costs as much as a piece
                self._look_soon()

    def _look_soon(self) -> None:
        if not self._soon:
            self._soon = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._soon = False
        self._left_s = min(PER_TURN_S, self._left_s + PER_TURN_S)
        try:
            while self._left_s > 0 and self._waiting:
                self._run(self._waiting.popleft())
        finally:
            self.is_free = self._left_s > 0 and not self._waiting
            if self._waiting:
                self._look_soon()

    def _run(self, piece: _Piece) -> None:
        done, act = piece.done, partial(piece.context.run, piece.act)
        del piece  # breaks a cycle: `done` holds the error, and the error holds this frame
        try:
            if done is None:
                self.timed(act)
            elif not done.done():  # done already: it was cancelled
                done.set_result(self.timed(act))
        except Exception as error:
            if done is None:
                raise
            done.set_exception(error)
        finally:
            del done


class Part:
    """One caller's access to the `LoopShare`."""

    __slots__ = ("_share", "_who")

    def __init__(self, share: LoopShare, who: str) -> None:
        self._share = share
        self._who = who

    async def do(self, act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do a piece of work, now or when its turn comes, and return its result. Cancelling drops it."""
        share = self._share
        if share.is_free:
            return share.timed(partial(act, *args, **kwargs))
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        share.queue(self._who, partial(act, *args, **kwargs), done)
        try:
            return await done
        finally:
            del done  # breaks a cycle: the future holds the error, and the error holds this frame

    def post(self, act: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Queue a piece of work without waiting for it."""
        self._share.queue(self._who, partial(act, *args, **kwargs))
