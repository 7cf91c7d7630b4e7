"""A server behind the gateway is gone in the middle of an answer: another one speaks on, or the answer says so."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from sonorant.client import Retry
from tests.cutting_proxy import CuttingProxy
from tests.gateway.cartesia_client import Heard, end, text
from tests.gateway.harness import Door, gateway_to
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import spoken
from tests.service.harness import eventually, served

SEED = 1
TEXT = "Words may come one by one, and none of them is lost."
STREAM = {"type": "session.config", "voice": "ada", "response_format": "pcm", "stream_audio": True, "seed": SEED}


class Fronts:
    """The proxies in front of the servers."""

    def __init__(self, *proxies: CuttingProxy) -> None:
        self.proxies = proxies
        self.engines: list[FakeEngine] = []

    def kill_the_speaking_one(self) -> None:
        """What `kill -9` looks like from outside."""
        for proxy, engine in zip(self.proxies, self.engines, strict=True):
            if engine.num_streams:
                proxy.is_down = True
                proxy.cut()


@asynccontextmanager
async def two_servers() -> AsyncIterator[tuple[Door, Fronts]]:
    engines = [FakeEngine(frame_s=0.01) for _ in range(2)]
    async with served(engines[0]) as one, served(engines[1]) as two:
        ports = [int(server.address.rpartition(":")[2]) for server in (one, two)]
        async with CuttingProxy(ports[0]) as first, CuttingProxy(ports[1]) as second:
            fronts = Fronts(first, second)
            fronts.engines = engines
            async with gateway_to(one, servers=[f"127.0.0.1:{p.port}" for p in fronts.proxies]) as door:
                await eventually(lambda: first.num_connections > 0 and second.num_connections > 0, True)
                await asyncio.sleep(0.1)  # both have told that they serve
                yield door, fronts


def killing(fronts: Fronts, after_bytes: int) -> Callable[[int], None]:
    """Kill the server that speaks once so many bytes have come, and no other one later."""
    left = [after_bytes]

    def count(num_bytes: int) -> None:
        if left[0] > 0 >= left[0] - num_bytes:
            fronts.kill_the_speaking_one()
        left[0] -= num_bytes

    return count


async def test_an_http_answer_continues_on_another_server() -> None:
    async with two_servers() as (door, fronts):
        count, heard = killing(fronts, 50_000), b""
        body = {"input": TEXT, "voice": "ada", "response_format": "pcm", "seed": SEED}
        async with door.http.post("/v1/audio/speech", json=body) as response:
            assert response.status == 200
            async for data in response.content.iter_any():
                heard += data
                count(len(data))
    assert any(proxy.is_down for proxy in fronts.proxies)
    assert heard == spoken(TEXT, SEED)


async def test_a_websocket_continues_on_another_server() -> None:
    async with two_servers() as (door, fronts):
        count, heard = killing(fronts, 50_000), b""
        async with door.http.ws_connect("/v1/audio/speech/stream") as socket:
            for message in (STREAM, {"type": "input.text", "text": TEXT}, {"type": "input.done"}):
                await socket.send_json(message)
            done = None
            while done is None:
                message = await socket.receive(timeout=60)
                if isinstance(message.data, bytes):
                    heard += message.data
                    count(len(message.data))
                elif message.json()["type"] == "session.done":
                    done = message.json()
    assert any(proxy.is_down for proxy in fronts.proxies) and "error" not in done
    assert heard == spoken(TEXT, SEED)


async def test_a_cartesia_context_continues_on_another_server() -> None:
    async with two_servers() as (door, fronts):
        count = killing(fronts, 50_000)
        async with door.http.ws_connect("/tts/websocket") as socket:
            heard = Heard(socket)
            await socket.send_json(text("c", TEXT, generation_config={}))
            await socket.send_json(end("c"))
            while not heard.done:
                message = await heard.next()
                count(len(base64.b64decode(message.get("data", ""))))
    assert any(proxy.is_down for proxy in fronts.proxies) and not heard.errors
    assert len(heard.audio["c"]) == len(spoken(TEXT, SEED))


async def test_without_another_server_an_answer_ends_without_addresses_or_guesses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sonorant.client.speaking.session.Retry", lambda: Retry(for_s=0.3))
    async with two_servers() as (door, fronts):
        async with door.http.ws_connect("/v1/audio/speech/stream") as socket:
            for message in (STREAM, {"type": "input.text", "text": TEXT}):
                await socket.send_json(message)
            errors = []
            while not errors or errors[-1]["type"] != "session.done":
                message = await socket.receive(timeout=60)
                if isinstance(message.data, bytes):
                    for proxy in fronts.proxies:
                        proxy.is_down = True
                        proxy.cut()
                elif message.json()["type"] in ("error", "session.done"):
                    errors.append(message.json())
        error, done = errors
        assert done["error"] and error["code"] == "server_unavailable"
        assert "127.0.0.1" not in error["message"] and "TLS" not in error["message"]
        status, refusal = await door.refusal(TEXT)
        assert status == 503 and refusal["code"] == "server_unavailable" and "127.0.0.1" not in refusal["message"]
