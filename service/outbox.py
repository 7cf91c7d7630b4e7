"""The responses of one session on their way to the one writer: whatever is told at once goes before audio.

`post` never blocks; `send` returns when gRPC has taken the response. At most one response waits in `send`.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from service.errors import LimitReached
from sonorant.tts.v1 import speak_pb2

MAX_POSTED = 1024  # only a client that sends without reading gets there


class Outbox:
    def __init__(self) -> None:
        self._posted: deque[speak_pb2.SpeakResponse] = deque()
        self._sending: tuple[speak_pb2.SpeakResponse, asyncio.Future[None]] | None = None
        self._taken: speak_pb2.SpeakResponse | None = None  # the latest of `send` that the writer has got
        self._wake = asyncio.Event()
        self._closed = False
        self._error: BaseException | None = None

    def post(self, response: speak_pb2.SpeakResponse) -> None:
        if len(self._posted) >= MAX_POSTED:
            self.close(LimitReached("responses", f"{MAX_POSTED} responses wait to be read; read while sending"))
            return
        self._posted.append(response)
        self._wake.set()

    async def send(self, response: speak_pb2.SpeakResponse) -> None:
        """Cancelling this takes the response back, unless it is being written."""
        taken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sending = (response, taken)
        self._wake.set()
        try:
            await taken
        except asyncio.CancelledError:
            self._sending = None
            raise

    def has_taken(self, response: speak_pb2.SpeakResponse) -> bool:
        """Whether the latest response of `send` was past taking back when `send` was cancelled."""
        return self._taken is response

    def close(self, error: BaseException | None = None) -> None:
        """Nothing follows what was posted; with an error, nothing at all but the error."""
        if not self._closed:
            self._closed, self._error = True, error
            self._wake.set()

    def abandon(self) -> None:
        """Nobody reads any more: an error is kept no longer, whose frames may know the outbox."""
        self._closed, self._error = True, None

    async def responses(self) -> AsyncIterator[speak_pb2.SpeakResponse]:
        """For the one writer. Asking for the next says that the last was written. Raises what `close` was given."""
        while True:
            if self._error is not None:
                raise self._error
            if self._posted:
                yield self._posted.popleft()
            elif self._sending is not None:
                (response, taken), self._sending = self._sending, None
                self._taken = response
                yield response
                if not taken.done():  # else `send` was cancelled meanwhile
                    taken.set_result(None)
            elif self._closed:
                return
            else:
                self._wake.clear()
                await self._wake.wait()
