"""The responses of one call on their way to its one writer: whatever is posted goes before audio.

`post` never blocks. `send` with `on_taken` returns when gRPC has taken the response; without, nobody needs to know, and
it waits only behind many others. At most one response waits in `send`. Whether one was sent is known here alone:
`on_taken` is called when the writer gets it, past taking back.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from sonorant.service.errors import LimitReached

MAX_POSTED = 1024  # only a client that sends without reading gets there
FEW = 16  # responses before one that need not be waited for: what follows it is made meanwhile

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
        """Since when, on the loop's clock, gRPC has had nothing to write; None: it has, or is about to."""
        return None if self._wake.is_set() else self._idle_since_s

    def post(self, response: R) -> None:
        if len(self._posted) >= MAX_POSTED:
            self.close(LimitReached("responses", f"{MAX_POSTED} responses wait to be read; read while sending"))
            return
        self._posted.append(response)
        self._wake.set()

    async def send(self, response: R, on_taken: Callable[[], None] | None = None) -> None:
        """Cancelling this takes the response back, unless it is being written or was posted."""
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
        """Nothing follows what was posted; with an error, nothing at all but the error."""
        if not self._closed:
            self._closed, self._error = True, error
            self._wake.set()

    def abandon(self) -> None:
        """Nobody reads any more: an error is kept no longer, whose frames may know the outbox."""
        self._closed, self._error = True, None

    async def responses(self) -> AsyncIterator[R]:
        """For the one writer. Asking for the next says that the last was written. Raises what `close` was given."""
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
                if not sending.written.done():  # else `send` was cancelled meanwhile
                    sending.written.set_result(None)
            elif self._closed:
                return
            else:
                self._wake.clear()
                self._idle_since_s = asyncio.get_running_loop().time()
                await self._wake.wait()
                self._idle_since_s = None
