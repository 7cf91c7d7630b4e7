"""Who sends thousands of small messages at once holds nobody up: in between, others have their turn."""

import gc
import json
from collections.abc import Iterator

import pytest

from tests.fuzz.doors import CONFIG
from tests.gateway.harness import gateway
from tests.gateway.hostile_requests import requests as hostile_requests
from tests.gateway.turns import BURST_BYTES, CLOSE, PING, UPGRADE, burst, frame
from tests.service.fake_engine import FakeEngine

LONGEST_S = 0.03  # of processor time; without turns they take 0.045 to 0.5


async def shorter_burst(port: int, begin: bytes, many: bytes, end: bytes) -> tuple[bytes, float]:
    """The last answer, and the shorter of two longest turns: now and then the host takes 10 to 30 ms from a turn, and
    one that is long by itself is long in both."""
    (_, first_s), (answer, second_s) = [await burst(port, begin, many, end) for _ in range(2)]
    return answer, min(first_s, second_s)


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
        _, longest_s = await shorter_burst(port, UPGRADE.format(path=path).encode() + begin, many, frame(b"", CLOSE))
    assert longest_s < LONGEST_S


@pytest.mark.parametrize("event", [{"type": "ping"}, {"type": "synthesize", "data": {}}, {"type": "x"}], ids=str)
async def test_events_of_wyoming(event: dict[str, object]) -> None:
    again = json.dumps(event).encode() + b"\n"
    async with gateway(FakeEngine(), wyoming_listen="127.0.0.1:0") as door:
        _, longest_s = await shorter_burst(door.wyoming_port, b"", again * (BURST_BYTES // len(again)), b"\n")
    assert longest_s < LONGEST_S


async def test_a_long_text_of_short_sentences() -> None:
    text = message(type="input.text", text="a. b! " * 20_000)
    async with gateway(FakeEngine()) as door:
        port = int(door.url.rpartition(":")[2])
        begin = UPGRADE.format(path="/v1/audio/speech/stream").encode() + SPLIT
        _, longest_s = await shorter_burst(port, begin, text, frame(b"", CLOSE))
    assert longest_s < LONGEST_S


async def test_a_body_of_which_each_byte_is_a_chunk() -> None:
    async with gateway(FakeEngine()) as door:
        port = int(door.url.rpartition(":")[2])
        answer, longest_s = await shorter_burst(port, b"", hostile_requests()["bytes as chunks"], b"")
    assert answer.startswith(b"HTTP/1.1 400") and longest_s < LONGEST_S
