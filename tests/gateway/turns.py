"""How long one turn of the event loop takes, and messages that are sent to a gateway by hand."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

BURST_BYTES = 200_000  # as many as the gateway may read at once
TEXT, CLOSE, PING = 0x81, 0x88, 0x89
MASK = b"\0\0\0\0"  # of a WebSocket's frame: what is sent stays as it is
UPGRADE = (
    "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class Turns:
    longest_s = 0.0


@asynccontextmanager
async def turns() -> AsyncIterator[Turns]:
    """Watches the event loop, which is the gateway's, too: how much processor time its longest turn takes."""
    seen = Turns()

    async def watch() -> None:
        while True:
            begun_s = time.thread_time()
            await asyncio.sleep(0)
            seen.longest_s = max(seen.longest_s, time.thread_time() - begun_s)

    watching = asyncio.create_task(watch())
    try:
        yield seen
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


def frame(data: bytes, opcode: int = TEXT) -> bytes:
    length = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xff" + len(data).to_bytes(8, "big")
    return bytes([opcode]) + length + MASK + data


async def burst(port: int, begin: bytes, many: bytes, end: bytes, timeout_s: float = 60.0) -> tuple[bytes, float]:
    """Send all of it, and read until the gateway closes the connection; return what it said, and its longest turn."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = bytearray()
    try:
        if begin:
            writer.write(begin)
            await asyncio.sleep(0.1)
        async with turns() as seen, asyncio.timeout(timeout_s):
            writer.write(many + end)
            with suppress(ConnectionError):
                while data := await reader.read(2**16):
                    answer += data
        return bytes(answer), seen.longest_s
    finally:
        writer.transport.abort()
