"""Writes HTTP with limits, so that no listener can hold memory for ever."""

import asyncio
from collections.abc import Mapping
from types import MappingProxyType

from aiohttp import HttpVersion11, web

EVENT_STREAM = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
WRITE_TIMEOUT_S = 60.0  # a listener who takes nothing for this long is gone


class WriteTimeout:
    """Cuts a connection off if its listener takes nothing for WRITE_TIMEOUT_S. Use it with `with` around every write.

    One timer per connection checks now and then; a timeout around each write would cost too much time.
    """

    def __init__(self, request: web.BaseRequest) -> None:
        self._transport = request.transport
        self._since_s = 0.0  # 0 = no write is waiting
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(WRITE_TIMEOUT_S / 4, self._look)

    def __enter__(self) -> None:
        self._since_s = self._loop.time()

    def __exit__(self, *_: object) -> None:
        self._since_s = 0.0

    def end(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        if self._since_s and self._loop.time() - self._since_s > WRITE_TIMEOUT_S and self._transport is not None:
            self._transport.abort()
        else:
            self._timer = self._loop.call_later(WRITE_TIMEOUT_S / 4, self._look)


class TrailedResponse(web.StreamResponse):
    """A response that can end with trailer fields, which aiohttp does not know; its connection can be used again."""

    trailer: Mapping[str, str] = MappingProxyType({})
    _ended = False

    async def write_eof(self, data: bytes = b"") -> None:
        """End the response once; aiohttp calls this again when the handler has returned."""
        if not self.trailer:
            await super().write_eof(data)
        elif not self._ended and self._req is not None and self._req.transport is not None:
            fields = "".join(f"{name}: {value}\r\n" for name, value in self.trailer.items())
            self._req.transport.write(f"0\r\n{fields}\r\n".encode())
        self._ended = True


class Answer:
    """A streamed answer. Its headers are sent with the first data, so an exception before that can still be an
    error."""

    def __init__(self, request: web.Request, headers: dict[str, str]) -> None:
        self._request = request
        self._response = TrailedResponse(headers=headers)
        self._is_chunked = request.version >= HttpVersion11
        if not self._is_chunked:
            self._response.force_close()  # only the end of the connection tells the end of the answer
        self._write_timeout = WriteTimeout(request)

    async def __aenter__(self) -> "Answer":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """If it fails after the beginning, cut the connection off, so that nobody mistakes a part for the whole."""
        self._write_timeout.end()
        if kind is not None and self._response.prepared:
            abort(self._request)

    @property
    def begun(self) -> bool:
        return self._response.prepared

    async def write(self, data: bytes) -> None:
        """Send data; wait until the listener has taken most of what was sent before."""
        if data:
            with self._write_timeout:
                if not self._response.prepared:
                    await self._response.prepare(self._request)
                await self._response.write(data)

    async def end(self, trailer: Mapping[str, str] | None = None) -> web.StreamResponse:
        """End the answer. Only an answer in chunks can have a trailer; others end without it."""
        if trailer and self._is_chunked and self._response.prepared:
            self._response.trailer = trailer
        with self._write_timeout:
            await self._response.write_eof()
        return self._response


def abort(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.abort()
