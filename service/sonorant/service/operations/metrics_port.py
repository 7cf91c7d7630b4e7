"""A minimal HTTP server on the metrics port: `/metrics` for a scraper and `/ready` for a balancer, by GET or HEAD.

`/ready` answers 200 while new calls should come here, else 404. So a balancer can tell a server that is draining, which
answers, from one that is gone or frozen, which does not.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager

from prometheus_client.exposition import CONTENT_TYPE_LATEST

REQUEST_TIMEOUT_S = 5.0
MAX_HEAD_BYTES = 16 * 1024


@asynccontextmanager
async def serve_metrics(
    listening: socket.socket,
    metrics: Callable[[], Awaitable[bytes]],
    ready: Callable[[], Awaitable[str]],
) -> AsyncIterator[None]:
    """Serve while the context is open. `metrics` are in the Prometheus format. `ready` returns what `ready_text` does,
    or "" if no new calls should come here."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                status, content_type, body = await _respond(head, metrics, ready)
                writer.write(
                    f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
                    "Connection: close\r\n\r\n".encode()
                )
                if not head.startswith(b"HEAD "):
                    writer.write(body)
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client sent no valid request, or has gone
        finally:
            writer.close()

    async with await asyncio.start_server(answer, sock=listening, limit=MAX_HEAD_BYTES):
        yield


def ready_text(warnings: Iterable[str]) -> str:
    return "ready\n" + "".join(f"warning: {text}\n" for text in warnings)


async def _respond(
    head: bytes,
    metrics: Callable[[], Awaitable[bytes]],
    ready: Callable[[], Awaitable[str]],
) -> tuple[str, str, bytes]:
    method, _, rest = head.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    if path not in (b"/metrics", b"/ready"):
        return "404 Not Found", "text/plain", b"not found: use /metrics or /ready\n"
    if method not in (b"GET", b"HEAD"):
        return "405 Method Not Allowed", "text/plain", b"use GET\n"
    if path == b"/metrics":
        return "200 OK", CONTENT_TYPE_LATEST, await metrics()
    if text := await ready():
        return "200 OK", "text/plain", text.encode()
    return "404 Not Found", "text/plain", b"not ready for new calls: starting, restarting a worker, or draining\n"
