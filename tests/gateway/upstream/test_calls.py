"""Whom the gateway says that it calls for, so that its clients do not share what one of them does."""

import asyncio
from typing import Any

import aiohttp
import pytest

from sonorant.gateway.upstream.calls import call_of
from sonorant.service.calls import resets
from tests.gateway.harness import Door, gateway
from tests.service.fake_engine import FakeEngine
from tests.service.harness import eventually

WORDS = {"input": "a" * 200, "response_format": "pcm"}


def client(door: Door, address: str) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(door.url, connector=aiohttp.TCPConnector(local_addr=(address, 0)))


async def speak(http: aiohttp.ClientSession, **headers: str) -> int:
    async with http.post("/v1/audio/speech", json=WORDS, headers=headers) as response:
        return len(await response.read())


@pytest.mark.parametrize(
    ("addresses", "headers"),
    [
        (("127.0.0.2", "127.0.0.3"), ({}, {})),
        (("127.0.0.2", "127.0.0.2"), ({"X-Forwarded-For": "10.1.1.1"}, {"X-Forwarded-For": "10.1.1.2"})),
    ],
    ids=["of their own addresses", "behind a proxy"],
)
async def test_who_barges_in_at_once_again_and_again_holds_no_other_client_back(
    addresses: tuple[str, str], headers: tuple[dict[str, str], dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resets, "MOST", 3.0)
    monkeypatch.setattr(resets, "PER_S", 0.001)  # who is held back waits for a quarter of an hour
    monkeypatch.setattr(resets, "EARLY_S", 1000.0)
    engine = FakeEngine()
    async with gateway(engine) as door, client(door, addresses[0]) as hasty, client(door, addresses[1]) as other:
        assert await speak(hasty, **headers[0]) == await speak(other, **headers[1]) > 0
        engine.frame_s = 0.08
        for _ in range(4):
            async with hasty.post("/v1/audio/speech", json=WORDS, headers=headers[0]) as response:
                await response.content.readany()
            await eventually(lambda: len(engine.live), 0)
        engine.frame_s = 0.0
        held = asyncio.create_task(speak(hasty, **headers[0]))
        assert await asyncio.wait_for(speak(other, **headers[1]), 60) > 0
        assert not held.done()
        held.cancel()


@pytest.mark.parametrize(
    ("told", "name"),
    [("", "10.0.0.9"), ("10.1.1.1", "10.1.1.1, 10.0.0.9"), ("10.1.1.1\n", "10.0.0.9"), ("\xff", "10.0.0.9")],
)
def test_the_addresses_from_the_first_client_on(told: str, name: str) -> None:
    headers: dict[str, Any] = {"X-Forwarded-For": told} if told else {}
    assert ("x-forwarded-for", name) in call_of(headers, address="10.0.0.9").metadata
