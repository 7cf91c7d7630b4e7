"""Listeners on WebSockets: slow ones keep their audio, and those who are gone are given up."""

import asyncio

import aiohttp
import pytest

from sonorant.gateway.web import sockets
from tests.gateway.harness import gateway
from tests.service.fake_engine import FakeEngine

CONFIG = {"type": "session.config", "voice": "ada", "response_format": "pcm", "stream_audio": True}
LONG = "Many words are said here. " * 100


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "HEARTBEAT_S", 0.1)


async def test_a_listener_who_is_behind_keeps_the_connection() -> None:
    async with gateway(FakeEngine()) as door, door.http.ws_connect("/v1/audio/speech/stream") as socket:
        await socket.send_json(CONFIG)
        await socket.send_json({"type": "input.text", "text": LONG})
        await socket.send_json({"type": "input.done"})
        await asyncio.sleep(0.5)  # five pings wait behind audio that nobody reads
        done = {}
        while done.get("type") != "session.done":
            message = await socket.receive(timeout=60)
            assert message.type in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT), message
            done = message.json() if message.type is aiohttp.WSMsgType.TEXT else {}


@pytest.mark.parametrize("path", ["/v1/audio/speech/stream", "/tts/websocket"])
async def test_a_caller_who_answers_no_ping_is_given_up(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr(sockets, "MAX_UNANSWERED", 3)
    async with gateway(FakeEngine()) as door, door.http.ws_connect(path, autoping=False) as socket:
        heard = [(await socket.receive(timeout=60)).type for _ in range(4)]
    assert heard == [aiohttp.WSMsgType.PING] * 3 + [aiohttp.WSMsgType.CLOSE]
