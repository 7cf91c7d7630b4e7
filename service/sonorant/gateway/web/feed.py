"""Sends requests to a server in order. The queue is limited by its text, not by its length, so a cancel always fits."""

import asyncio
from contextlib import suppress

from sonorant.gateway.errors import Refusal
from sonorant.gateway.upstream.speaking import Speaking
from sonorant.tts.v1.speak_pb2 import SpeakRequest

MAX_WAITING_CHARS = 256 * 1024
_FLUSH_CHARS = 64  # how many characters a flush counts as
_NUM_FIRST = 2  # a text and its end; few enough for a server to take them before anybody reads its answer


class Feed:
    def __init__(self) -> None:
        self._requests: asyncio.Queue[SpeakRequest | None] = asyncio.Queue()
        self._waiting_chars = 0
        self._pumping: asyncio.Task[None] | None = None

    def put(self, request: SpeakRequest) -> None:
        """Queue a request. Raises Refusal if too much text waits already; an end or a cancel is always accepted."""
        chars = _chars(request)
        if chars and self._waiting_chars + chars > MAX_WAITING_CHARS:
            message = f"{MAX_WAITING_CHARS} characters wait to be spoken; send more after some of them were spoken"
            raise Refusal(413, message, code="too_much_text")
        self._waiting_chars += chars
        self._requests.put_nowait(request)

    def take_first(self) -> list[SpeakRequest]:
        """Take requests that wait already and can be sent with the call. Not to be called after `start`."""
        first: list[SpeakRequest] = []
        while len(first) < _NUM_FIRST and not self._requests.empty():
            request = self._requests.get_nowait()
            if request is None:
                self.end()  # it was the last one; put it back
                break
            self._waiting_chars -= _chars(request)
            first.append(request)
        return first

    def end(self) -> None:
        """There will be no more requests, not even a cancel."""
        self._requests.put_nowait(None)

    def start(self, speaking: Speaking) -> None:
        self._pumping = asyncio.create_task(self._pump(speaking))

    async def stop(self) -> None:
        if self._pumping is not None:
            self._pumping.cancel()
            with suppress(asyncio.CancelledError):
                await self._pumping

    async def _pump(self, speaking: Speaking) -> None:
        while (request := await self._requests.get()) is not None:
            self._waiting_chars -= _chars(request)
            await speaking.send(request)
        await speaking.finish()


def _chars(request: SpeakRequest) -> int:
    return len(request.text) + (_FLUSH_CHARS if request.HasField("flush") else 0)
