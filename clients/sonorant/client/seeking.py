"""Finds a server for a session: one call after another, and several at the same time if the first are not answered."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import grpc

from sonorant.client.backoff import delays_s
from sonorant.client.errors import is_lost, is_refusal
from sonorant.client.lines import Lines
from sonorant.tts.v1.speak_pb2 import SessionStarted

# How long calls may be silent before another one is made beside them, in multiples of `answer_s`. The first two pauses
# are the shortest, because a balancer may well send the second call to the same server.
PAUSES = (1, 1, 2)
Connect = Callable[["Attempt"], Coroutine[Any, Any, SessionStarted]]


@dataclass(eq=False)
class Attempt:
    """A call without an answer yet."""

    stub: Any
    begun_s: float
    call: Any = None
    greeted: bool = False  # its headers have come: the server is alive and works on it


@dataclass(frozen=True)
class Found:
    stub: Any
    call: Any
    started: SessionStarted


class Seeking:
    """`run` makes a call, waits, makes another, and returns the first that a server takes; it abandons the others."""

    def __init__(self, lines: Lines, connect: Connect, answer_s: float, most_calls: int) -> None:
        """`connect` makes the call of an attempt and waits for its session. `answer_s`: how long a call may be silent
        before another one is made beside it."""
        self._lines = lines
        self._connect = connect
        self._answer_s = answer_s
        self._most_calls = most_calls
        self._attempts: dict[asyncio.Task[SessionStarted], Attempt] = {}
        self.error: grpc.aio.AioRpcError | None = None  # the latest error of an attempt

    async def run(self, stub: Any, *, persists: bool) -> Found:
        """Return the first call that a server takes. `persists`: try again after losses and refusals, until cancelled.
        Raises all other errors; without `persists`, the first error."""
        loop = asyncio.get_running_loop()
        delays, pauses = delays_s(), iter(PAUSES)
        next_s = loop.time()
        found = None
        try:
            while found is None:
                if len(self._attempts) < self._most_calls and loop.time() >= next_s:
                    if self._attempts:
                        stub = self._lines.other_than(stub)
                    self._begin(stub)
                    next_s = loop.time() + self._answer_s * next(pauses, PAUSES[-1])
                done = await self._wait(next_s)
                for task in done:
                    attempt = self._attempts.pop(task)
                    try:
                        found = Found(attempt.stub, attempt.call, task.result())
                        self._lines.answered(attempt.stub, loop.time() - attempt.begun_s)
                        break
                    except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
                        self._judge(error, persists=persists)
                    next_s = loop.time() + next(delays)
                if not done and any(attempt.greeted for attempt in self._attempts.values()):
                    next_s = loop.time() + self._answer_s
            return found
        finally:
            self._leave_the_rest(linger=found is not None)

    def _begin(self, stub: Any) -> None:
        loop = asyncio.get_running_loop()
        attempt = Attempt(stub, loop.time())
        self._attempts[loop.create_task(self._connect(attempt))] = attempt

    async def _wait(self, next_s: float) -> set["asyncio.Task[SessionStarted]"]:
        """Return the attempts that have ended; wait for one at most until the next attempt may begin."""
        timeout_s = max(0.0, next_s - asyncio.get_running_loop().time())
        if not self._attempts:
            await asyncio.sleep(timeout_s)
            return set()
        may_begin = len(self._attempts) < self._most_calls
        done, _ = await asyncio.wait(
            self._attempts, timeout=timeout_s if may_begin else None, return_when=asyncio.FIRST_COMPLETED
        )
        return done

    def _judge(self, error: Exception, *, persists: bool) -> None:
        if isinstance(error, grpc.aio.AioRpcError):
            self.error = error
            if persists and (is_lost(error) or is_refusal(error)):
                return
            raise error
        if not persists:
            raise error

    def _leave_the_rest(self, *, linger: bool) -> None:
        for task, attempt in self._attempts.items():
            if linger and attempt.call is not None and not task.done():
                self._lines.leave(attempt.call, task)
                continue
            task.cancel()
            task.add_done_callback(_forget)
            if attempt.call is not None:
                attempt.call.cancel()


def _forget(task: "asyncio.Task[SessionStarted]") -> None:
    """Retrieve the error of an abandoned attempt, so that asyncio does not report it."""
    if not task.cancelled():
        task.exception()
