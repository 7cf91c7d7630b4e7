"""Reads the bodies of requests: only of callers whom a server admits, and only so much of each.

`admit` comes first, for every request that may have a body (`edge`): until then nothing of it is read.
"""

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from aiohttp import web

from sonorant.gateway.errors import Refusal
from sonorant.gateway.web.context import CALL, CONNECTIONS, KEYS, LARGE_BODIES, MISSPELT
from sonorant.gateway.web.json_input import Body, decode, misspelt, parse

MAX_BODY_BYTES = 12 * 1024 * 1024  # a recording of 8 MiB in base64, and the rest
BODY_TIMEOUT_S = 60.0
LARGE_BODY_BYTES = 64 * 1024  # more than any text
_PLAIN = ("", "identity")


async def admit(request: web.Request) -> None:
    """Raise Refusal if a body of this caller, or of this encoding, is not to be read."""
    await request.app[KEYS].check(request[CALL])
    encoding = request.headers.get("Content-Encoding", "").strip().lower()
    if encoding not in _PLAIN:
        message = f"Content-Encoding: {encoding[:40]!r} is not read; send the body as it is"
        raise Refusal(415, message, code="unsupported_encoding")


async def read_json(request: web.Request) -> Any:
    """Read the body as JSON. Raises Refusal."""
    return decode(await read_body(request))


async def read_model(request: web.Request, model: type[Body]) -> Body:
    """Read the body as JSON, and validate it against a model. Raises Refusal."""
    data = await read_json(request)
    request[MISSPELT] = misspelt(model, data)
    return parse(model, data)


async def read_body(request: web.Request, limit: int = MAX_BODY_BYTES) -> bytes:
    """Read the body. Raises Refusal."""
    data = bytearray()
    await receive(request, data.extend, limit)
    return bytes(data)


async def receive(request: web.Request, take: Callable[[bytes], object], limit: int = MAX_BODY_BYTES) -> None:
    """Give `take` the body as it comes. Other callers have their turn before each piece, which is all that has arrived,
    some 100 KiB. Raises Refusal if there is too much of it, if it takes too long, or if it is damaged."""
    caller = request[CALL].key or request.remote or ""
    num_bytes = 0
    try:
        with ExitStack() as stack:
            stack.enter_context(request.app[CONNECTIONS].waiting(request.transport))
            async with asyncio.timeout(BODY_TIMEOUT_S):
                async for piece in request.content.iter_any():
                    if num_bytes <= LARGE_BODY_BYTES < num_bytes + len(piece):
                        stack.enter_context(request.app[LARGE_BODIES].place(caller))
                    num_bytes += len(piece)
                    if num_bytes > limit:
                        raise Refusal(413, f"the body is larger than {limit} bytes; send less")
                    take(piece)
    except TimeoutError:
        raise Refusal(408, f"the body was not complete after {BODY_TIMEOUT_S:g} s") from None
    except web.RequestPayloadError as error:
        raise Refusal(400, f"the body is damaged: {error}") from None
