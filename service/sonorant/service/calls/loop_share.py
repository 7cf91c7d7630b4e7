"""Shares each turn of the event loop out among callers: steps of their calls, texts, and large messages.

Left to itself, the loop does all that is due, in the order in which it became due. If a client has a thousand calls and
each has a step to do, whatever others wait for comes behind all of these, and a call takes several steps. So once many
events have come from gRPC at the same time, steps of calls wait in `Steps`, and callers take turns with them, for so
long in each turn of the loop. When none waits any more, they are left to the loop again and cost nothing. Only steps of
tasks wait. Other callbacks of the loop run at once: they may be for all callers.

What callers send, texts and large messages, is worked on in pieces, by `LoopShare`. Each piece is short. But when many
sessions each do one in the same turn, all audio and calls wait for all of them. So all pieces share one allowance,
which is renewed in the next turn once half of it is used. When it is used up, pieces wait for later turns, taken from
the callers in rotation. A piece that overdraws the allowance is paid for by the next turns, which then do no such work.
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

PER_TURN_S = 0.004  # of processor time, for steps and once more for pieces

_Step = tuple[Callable[..., object], tuple[Any, ...], Context]


class Steps:
    """Belongs to an event loop, and stands before its `call_soon` while steps wait."""

    def __init__(self, who: Callable[[Context], str], clock: Callable[[], float] = time.thread_time) -> None:
        """`who`: the caller for whom a context's code runs; "" if it is nobody's. `clock`: processor time of the
        loop's thread, so that time spent waiting for a core is not charged."""
        self._who = who
        self._clock = clock
        self._waiting = FairQueue[_Step]()
        self._loop: Any = None  # while we stand before it
        self._soon: Callable[..., Any]  # its own `call_soon`

    def on_many(self) -> None:
        """Note that many events have come, each of which may let a call take a step."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._soon = self._loop.call_soon
            self._loop.call_soon = self._call_soon
            self._soon(self._turn)

    def _call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Any:
        is_step = isinstance(getattr(callback, "__self__", None), asyncio.Task)
        if is_step and context is not None and (who := self._who(context)):
            self._waiting.push((callback, args, context), who)
            return None  # tasks do not look at it
        return self._soon(callback, *args, context=context)

    def _turn(self) -> None:
        until_s = self._clock() + PER_TURN_S
        try:
            while self._waiting and self._clock() < until_s:
                step, args, context = self._waiting.popleft()
                context.run(step, *args)
        finally:
            if self._waiting:
                self._soon(self._turn)
            else:
                del self._loop.call_soon
                del self._soon
                self._loop = None


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

    def of(self, who: str) -> "LoopAccess":
        return LoopAccess(self, who)

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


class LoopAccess:
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
