"""Reads and writes HTTP with limits, so that no caller can hold time or memory for ever."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any, TypeVar

from aiohttp import web
from pydantic import BaseModel, ValidationError

from sonorant.gateway.errors import Refusal

Body = TypeVar("Body", bound=BaseModel)

MAX_BODY_BYTES = 12 * 1024 * 1024  # a recording of 8 MiB in base64, and the rest
BODY_TIMEOUT_S = 60.0
LARGE_BODY_BYTES = 64 * 1024  # more than any text
MAX_LARGE_BODIES = 16
MAX_VALUES = 70_000  # in one message: 32 texts with an embedding of 2,048 numbers each
MAX_UINT32 = 2**32 - 1  # largest value of the server's fields
MAX_ESCAPES = 400_000  # a recording of 8 MiB with all slashes escaped has half as many
HALF_A_PAIR = "half of a surrogate pair is not a character; send whole pairs"
EVENT_STREAM = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
WRITE_TIMEOUT_S = 60.0  # a listener who takes nothing for this long is gone

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class LargeBodies:
    """Limits how many large bodies are read at the same time, because a body is read before its key is checked."""

    def __init__(self) -> None:
        self._num = 0

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold one of the places while a large body is read. Raises Refusal if all are taken."""
        if self._num >= MAX_LARGE_BODIES:
            message = f"{MAX_LARGE_BODIES} large bodies are being read already; send it again soon"
            raise Refusal(429, message, code="too_many_large_bodies", retry_after_s=1.0)
        self._num += 1
        try:
            yield
        finally:
            self._num -= 1


async def read_json(request: web.Request, large: LargeBodies) -> Any:
    """Read the body as JSON. Raises Refusal."""
    return decode(await read_body(request, large))


async def read_body(request: web.Request, large: LargeBodies) -> bytes:
    """Read the body. Raises Refusal."""
    data = bytearray()
    with ExitStack() as stack:
        async with arriving():
            async for piece in request.content.iter_any():
                if len(data) <= LARGE_BODY_BYTES < len(data) + len(piece):
                    stack.enter_context(large.place())
                data += piece
                if len(data) > MAX_BODY_BYTES:
                    raise Refusal(413, f"the body is larger than {MAX_BODY_BYTES} bytes; send less")
        return bytes(data)


@asynccontextmanager
async def arriving() -> AsyncIterator[None]:
    """A context for reading a body. Raises Refusal if it takes too long, or if the body is damaged."""
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            yield
    except TimeoutError:
        raise Refusal(408, f"the body was not complete after {BODY_TIMEOUT_S:g} s") from None
    except web.RequestPayloadError as error:
        raise Refusal(400, f"the body is damaged: {error}") from None


def decode(data: bytes | str) -> Any:
    """Parse JSON, with so few values that parsing does not delay other callers. Raises Refusal."""
    try:
        text = data if isinstance(data, str) else data.decode()
        if text.count(",") + text.count("[") + text.count("{") > MAX_VALUES or text.count("\\") > MAX_ESCAPES:
            raise Refusal(413, f"more than {MAX_VALUES} values, or {MAX_ESCAPES} escaped characters; send fewer")
        value = json.loads(text)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except UnicodeEncodeError:
        raise Refusal(400, HALF_A_PAIR) from None
    except UnicodeDecodeError as error:
        raise Refusal(400, f"what was sent is not UTF-8: {error.reason} at byte {error.start}") from None
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"what was sent is not JSON: {error}") from None


def parse(model: type[Body], data: Any) -> Body:
    """Validate JSON against a model. Raises Refusal."""
    if not isinstance(data, dict):
        raise Refusal(400, "the body must be a JSON object")
    try:
        return model.model_validate({name: _told(value) for name, value in _told(data).items()})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        param = ".".join(str(part) for part in first["loc"][:1])
        raise Refusal(400, f"{param}: {first['msg']}", param=param, code="invalid_value") from None


def _told(data: Any) -> Any:
    """Drop null fields: clients send null for a field that is not set."""
    return {name: value for name, value in data.items() if value is not None} if isinstance(data, dict) else data


class Patience:
    """Cuts a connection off if its listener takes nothing for WRITE_TIMEOUT_S. Use it with `with` around every write.

    One timer per connection checks now and then; a timeout around each write would cost a tenth of the chunk's time.
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


class Answer:
    """A streamed answer. Its headers are sent with the first data, so an exception before that can still be an
    error."""

    def __init__(self, request: web.Request, headers: dict[str, str]) -> None:
        self._request = request
        self._response = web.StreamResponse(headers=headers)
        self._patience = Patience(request)

    async def __aenter__(self) -> "Answer":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """If it fails after the beginning, cut the connection off, so that nobody mistakes a part for the whole."""
        self._patience.end()
        if kind is not None and self._response.prepared:
            abort(self._request)

    @property
    def begun(self) -> bool:
        return self._response.prepared

    async def write(self, data: bytes) -> None:
        """Send data; wait until the listener has taken most of what was sent before."""
        if data:
            with self._patience:
                if not self._response.prepared:
                    await self._response.prepare(self._request)
                await self._response.write(data)

    async def end(self) -> web.StreamResponse:
        with self._patience:
            await self._response.write_eof()
        return self._response


def abort(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.abort()
