"""Who sends thousands of small messages at once holds nobody up: in between, others have their turn."""

import asyncio
import gc
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

import pytest

from tests.fuzz.doors import CONFIG, MASK
from tests.gateway.harness import gateway
from tests.service.fake_engine import FakeEngine

LONGEST_S = 0.03  # of processor time; without turns they take 0.045 to 0.5
BURST_BYTES = 200_000  # as many as the gateway may read at once
TEXT, CLOSE, PING = 0x81, 0x88, 0x89
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


def message(**fields: object) -> bytes:
    return frame(json.dumps(fields).encode())


SPLIT = message(**CONFIG, split_granularity="sentence")
BURSTS = {
    "pings": ("/v1/audio/speech/stream", b"", frame(b"", PING)),
    "no messages": ("/v1/audio/speech/stream", message(**CONFIG), frame(b"{}")),
    "texts": ("/v1/audio/speech/stream", message(**CONFIG), message(type="input.text", text="a")),
    "sentences": ("/v1/audio/speech/stream", SPLIT, message(type="input.text", text="a. ")),
    "contexts": ("/tts/websocket", b"", message(context_id="a", transcript="a", **{"continue": True})),
    "cancels": ("/tts/websocket", b"", message(context_id="a", cancel=True)),
}


async def burst(port: int, begin: bytes, many: bytes, end: bytes) -> float:
    """Send all of it, and read until the gateway closes the connection; return its longest turn."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(begin)
    await asyncio.sleep(0.1)
    async with turns() as seen, asyncio.timeout(60):
        writer.write(many + end)
        await reader.read()
    writer.close()
    return seen.longest_s


@pytest.fixture(autouse=True)
def no_collections() -> Iterator[None]:
    """A collection of garbage is a turn of its own length."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("kind", BURSTS)
async def test_messages_of_a_socket(kind: str) -> None:
    path, begin, again = BURSTS[kind]
    async with gateway(FakeEngine()) as door:
        port = int(door.url.rpartition(":")[2])
        many = again * (BURST_BYTES // len(again))
        longest_s = await burst(port, UPGRADE.format(path=path).encode() + begin, many, frame(b"", CLOSE))
    assert longest_s < LONGEST_S


@pytest.mark.parametrize("event", [{"type": "ping"}, {"type": "synthesize", "data": {}}, {"type": "x"}], ids=str)
async def test_events_of_wyoming(event: dict[str, object]) -> None:
    again = json.dumps(event).encode() + b"\n"
    async with gateway(FakeEngine(), wyoming_listen="127.0.0.1:0") as door:
        longest_s = await burst(door.wyoming_port, b"", again * (BURST_BYTES // len(again)), b"\n")
    assert longest_s < LONGEST_S


async def test_a_long_text_of_short_sentences() -> None:
    text = message(type="input.text", text="a. b! " * 20_000)
    async with gateway(FakeEngine()) as door:
        port = int(door.url.rpartition(":")[2])
        begin = UPGRADE.format(path="/v1/audio/speech/stream").encode() + SPLIT
        longest_s = await burst(port, begin, text, frame(b"", CLOSE))
    assert longest_s < LONGEST_S
