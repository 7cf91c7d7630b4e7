"""`GET /metrics` over plain HTTP, on a port of its own: just enough for a scraper, on the event loop of everything."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

REQUEST_TIMEOUT_S = 5.0
MAX_HEAD_BYTES = 16 * 1024


def listening_socket(address: str) -> socket.socket:
    """`HOST:PORT`, with brackets around an IPv6 address. Raises OSError."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    return socket.create_server((host, int(port)), family=socket.AF_INET6 if ":" in host else socket.AF_INET)


@asynccontextmanager
async def serve_metrics(listening: socket.socket, registry: CollectorRegistry) -> AsyncIterator[None]:
    """While the context is open."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                status, content_type, body = _respond(head, registry)
                writer.write(
                    f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
                    "Connection: close\r\n\r\n".encode()
                )
                writer.write(body)
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # not a scraper, or one that has gone
        finally:
            writer.close()

    async with await asyncio.start_server(answer, sock=listening, limit=MAX_HEAD_BYTES):
        yield


def _respond(head: bytes, registry: CollectorRegistry) -> tuple[str, str, bytes]:
    method, _, rest = head.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    if path != b"/metrics":
        return "404 Not Found", "text/plain", b"there is only /metrics here\n"
    if method != b"GET":
        return "405 Method Not Allowed", "text/plain", b"use GET\n"
    return "200 OK", CONTENT_TYPE_LATEST, generate_latest(registry)
