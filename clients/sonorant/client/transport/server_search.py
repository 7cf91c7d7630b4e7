"""Finds a server for a session. If a call is not answered soon, makes another one beside it."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import grpc

from sonorant.client.errors import is_full, is_lost, is_starting
from sonorant.client.transport.backoff import delays_s
from sonorant.client.transport.connections import Connections
from sonorant.tts.v1.speak_pb2 import SessionStarted

# The pauses between the calls, in multiples of `max_answer_s`; the last one repeats. The second is as short as the
# first, because a balancer may well send the second call to the same server.
PAUSES = (1, 1, 2)
Connect = Callable[["Attempt"], Coroutine[Any, Any, SessionStarted]]


@dataclass(eq=False)
class Attempt:
    """A call without an answer yet."""

    stub: Any
    started_s: float
    call: Any = None
    has_headers: bool = False  # its headers have come, so the server is alive


@dataclass(frozen=True)
class AcceptedCall:
    """A call that a server has answered: it takes the session."""

    stub: Any
    call: Any
    started: SessionStarted


class ServerSearch:
    """`run` makes a call, waits, makes another, and returns the first that a server accepts; it abandons the others."""

    def __init__(self, connections: Connections, connect: Connect, max_answer_s: float, max_calls: int) -> None:
        """`connect` makes the call of an attempt and waits for its answer. `max_answer_s`: how long to wait before
        another call is made. `max_calls`: how many calls may be open at the same time."""
        self._connections = connections
        self._connect = connect
        self._max_answer_s = max_answer_s
        self._max_calls = max_calls
        self._attempts: dict[asyncio.Task[SessionStarted], Attempt] = {}
        self.error: grpc.aio.AioRpcError | None = None  # the latest error of an attempt

    async def run(self, stub: Any, *, keep_trying: bool) -> AcceptedCall:
        """Return the first call that a server accepts. `keep_trying`: after lost connections and full servers, try
        again until cancelled; raise only other errors. Otherwise the first error is raised."""
        loop = asyncio.get_running_loop()
        delays, pauses = delays_s(), iter(PAUSES)
        next_start_s = loop.time()
        found = None
        try:
            while found is None:
                if len(self._attempts) < self._max_calls and loop.time() >= next_start_s:
                    if self._attempts:
                        stub = self._connections.switch_from(stub)
                    self._start(stub)
                    next_start_s = loop.time() + self._max_answer_s * next(pauses, PAUSES[-1])
                done = await self._wait(next_start_s)
                for task in done:
                    attempt = self._attempts.pop(task)
                    try:
                        found = AcceptedCall(attempt.stub, attempt.call, task.result())
                        self._connections.answered(attempt.stub, loop.time() - attempt.started_s)
                        break
                    except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
                        if isinstance(error, grpc.aio.AioRpcError) and is_starting(error):
                            stub = self._connections.switch_from(attempt.stub)  # another address may serve
                        self._raise_unless_retried(error, keep_trying=keep_trying)
                    next_start_s = loop.time() + next(delays)
                if not done and any(attempt.has_headers for attempt in self._attempts.values()):
                    next_start_s = loop.time() + self._max_answer_s
            return found
        finally:
            self._abandon_the_rest(linger=found is not None)

    def _start(self, stub: Any) -> None:
        loop = asyncio.get_running_loop()
        attempt = Attempt(stub, loop.time())
        self._attempts[loop.create_task(self._connect(attempt))] = attempt

    async def _wait(self, next_start_s: float) -> set["asyncio.Task[SessionStarted]"]:
        """Wait until an attempt ends or the next one may start; return those that have ended."""
        timeout_s = max(0.0, next_start_s - asyncio.get_running_loop().time())
        if not self._attempts:
            await asyncio.sleep(timeout_s)
            return set()
        may_start = len(self._attempts) < self._max_calls
        done, _ = await asyncio.wait(
            self._attempts, timeout=timeout_s if may_start else None, return_when=asyncio.FIRST_COMPLETED
        )
        return done

    def _raise_unless_retried(self, error: Exception, *, keep_trying: bool) -> None:
        if isinstance(error, grpc.aio.AioRpcError):
            self.error = error
            if keep_trying and (is_lost(error) or is_full(error)):
                return
            raise error
        if not keep_trying:
            raise error

    def _abandon_the_rest(self, *, linger: bool) -> None:
        for task, attempt in self._attempts.items():
            if linger and attempt.call is not None and not task.done():
                self._connections.abandon(attempt.call, task)
                continue
            task.cancel()
            task.add_done_callback(_retrieve_error)
            if attempt.call is not None:
                attempt.call.cancel()


def _retrieve_error(task: "asyncio.Task[SessionStarted]") -> None:
    """Retrieve the error of an abandoned attempt, so that asyncio does not report it."""
    if not task.cancelled():
        task.exception()
