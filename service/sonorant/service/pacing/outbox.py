"""The responses of one call on their way to its only writer. Posted responses go before audio.

`post` never blocks. `send` with `on_taken` returns when gRPC has taken the response; without it, `send` waits only if
many responses are posted already. At most one response waits in `send`. Only the outbox knows whether a response was
sent: it calls `on_taken` when the writer gets it, after which it cannot be taken back.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from sonorant.service.errors import LimitReached

MAX_POSTED = 1024  # only a client that sends without reading reaches this
FEW = 16  # while fewer responses are posted, `send` without `on_taken` does not wait

R = TypeVar("R")


@dataclass(slots=True, eq=False)
class _Sending(Generic[R]):
    response: R
    on_taken: Callable[[], None] | None
    written: "asyncio.Future[None]"


class Outbox(Generic[R]):
    def __init__(self) -> None:
        self._posted: deque[R] = deque()
        self._sending: _Sending[R] | None = None
        self._wake = asyncio.Event()
        self._closed = False
        self._error: BaseException | None = None
        self._idle_since_s: float | None = None

    @property
    def quiet_since_s(self) -> float | None:
        """Since when, on the loop's clock, gRPC has had nothing to write; None while it has something, or soon will."""
        return None if self._wake.is_set() else self._idle_since_s

    def post(self, response: R) -> None:
        self.put(response)
        self._wake.set()

    def put(self, response: R) -> None:
        """Post a response that may wait until the writer is woken, by `wake` or by another response."""
        if len(self._posted) >= MAX_POSTED:
            self.close(LimitReached("responses", f"{MAX_POSTED} responses wait to be read; read while sending"))
            return
        self._posted.append(response)

    def wake(self) -> None:
        self._wake.set()

    async def send(self, response: R, on_taken: Callable[[], None] | None = None) -> None:
        """Send a response. Cancelling this takes the response back, unless it is being written or was posted."""
        if on_taken is None and len(self._posted) < FEW:
            self.post(response)
            return
        sending = _Sending(response, on_taken, asyncio.get_running_loop().create_future())
        self._sending = sending
        self._wake.set()
        try:
            await sending.written
        except asyncio.CancelledError:
            self._sending = None
            raise

    def close(self, error: BaseException | None = None) -> None:
        """Let the writer end after the posted responses, or with an error at once, without them."""
        if not self._closed:
            self._closed, self._error = True, error
            self._wake.set()

    def abandon(self) -> None:
        """Drop an error that nobody will read: its frames may refer to the outbox, which makes a cycle."""
        self._closed, self._error = True, None

    async def responses(self) -> AsyncIterator[R]:
        """Yield the responses, for the only writer. Asking for the next one means that the last was written.

        Raises the error that `close` was given.
        """
        while True:
            if self._error is not None:
                raise self._error
            if self._posted:
                yield self._posted.popleft()
            elif self._sending is not None:
                sending, self._sending = self._sending, None
                if sending.on_taken is not None:
                    sending.on_taken()
                yield sending.response
                if not sending.written.done():  # done: `send` was cancelled meanwhile
                    sending.written.set_result(None)
            elif self._closed:
                return
            else:
                self._wake.clear()
                self._idle_since_s = asyncio.get_running_loop().time()
                await self._wake.wait()
                self._idle_since_s = None
