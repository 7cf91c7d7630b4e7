"""How long one turn of the event loop takes, and messages that are sent to a gateway by hand."""

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

BURST_BYTES = 200_000  # as many as the gateway may read at once
TEXT, CLOSE, PING = 0x81, 0x88, 0x89
WORK_S = 0.004  # of `_work_s`, where the bounds of the tests were found
MASK = b"\0\0\0\0"  # of a WebSocket's frame: what is sent stays as it is
UPGRADE = (
    "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class Turns:
    longest_s = 0.0


@contextmanager
def turns() -> Iterator[Turns]:
    """Watches the event loop, which is the gateway's, too: how much processor time its longest turn takes."""
    seen, loop, begun_s = Turns(), asyncio.get_running_loop(), time.thread_time()

    def look() -> None:
        nonlocal begun_s, next_look
        now_s = time.thread_time()
        seen.longest_s, begun_s = max(seen.longest_s, now_s - begun_s), now_s
        next_look = loop.call_soon(look)

    next_look = loop.call_soon(look)
    try:
        yield seen
    finally:
        next_look.cancel()


def slowness() -> float:
    """How many times more processor time things take here and now than where the bounds of the tests were found."""
    return max(1.0, min(_work_s() for _ in range(3)) / WORK_S)


def _work_s() -> float:
    begun_s = time.thread_time()
    for _ in range(20):
        assert json.loads(json.dumps({str(number): "a" * number for number in range(100)}))
        assert sum(number * number for number in range(500))
    return time.thread_time() - begun_s


def frame(data: bytes, opcode: int = TEXT) -> bytes:
    length = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xff" + len(data).to_bytes(8, "big")
    return bytes([opcode]) + length + MASK + data


async def burst(
    port: int, begin: bytes, many: bytes, end: bytes, timeout_s: float = 60.0, *, hangs_up: bool = False
) -> tuple[bytes, float]:
    """Send all of it, and read until the gateway closes the connection; return what it said, and its longest turn, as
    long as it would be where the bounds of the tests were found. `hangs_up`: nobody waits for an answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = bytearray()
    try:
        if begin:
            writer.write(begin)
            await asyncio.sleep(0.1)
        with turns() as seen:
            writer.write(many + end)
            if hangs_up:
                writer.write_eof()
            async with asyncio.timeout(timeout_s):
                with suppress(ConnectionError):
                    while data := await reader.read(2**16):
                        answer += data
        return bytes(answer), seen.longest_s / slowness()
    finally:
        writer.transport.abort()
