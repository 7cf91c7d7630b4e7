"""What a request may cost a gateway: hardly anything before its key is known, and little enough after.

The gateway is a process of its own. Its processor time is measured, which is the same on a busy machine; a slow one
counts accordingly.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from sonorant.client import Access
from sonorant.gateway.app import make_app
from sonorant.gateway.metrics import GatewayMetrics
from sonorant.gateway.settings import GatewayConfig
from sonorant.gateway.upstream.calls import UpstreamCall
from sonorant.gateway.upstream.keys import Keys
from sonorant.gateway.upstream.servers import Servers
from tests.gateway.gateway_process import GatewayProcess
from tests.gateway.harness import gateway
from tests.gateway.hostile_requests import requests as hostile_requests
from tests.gateway.turns import slowness
from tests.service.fake_engine import FakeEngine
from tests.service.harness import eventually, served
from tests.service.keys import ADA, BOB, table

pytestmark = pytest.mark.slow

MOST_S = 1.0  # of a core; the dearest of them took a minute
MOST_UNKNOWN_S = 0.25


@asynccontextmanager
async def gateway_process(folder: Path, *, keys: bool) -> AsyncIterator[GatewayProcess]:
    """Ready, before a server that keeps voices; with `keys`, it admits only callers who have one."""
    settings = {"voices_dir": folder / "voices"}
    if keys:
        (folder / "keys.toml").write_text(table("ada", ADA))
        settings["api_keys"] = folder / "keys.toml"
    async with served(FakeEngine(task="base"), **settings) as server, aiohttp.ClientSession() as http:
        process = await asyncio.to_thread(GatewayProcess, folder / "log", "--server", server.address)
        try:

            async def ready() -> int:
                async with http.get(f"{process.url}/ready") as response:
                    return response.status

            await eventually(ready, 200)
            yield process
        finally:
            await asyncio.to_thread(process.stop)


async def answer(process: GatewayProcess, request: bytes) -> bytes:
    """The first line of what comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(process.url.rpartition(":")[2]))

    async def send() -> None:
        for start in range(0, len(request), 2**20):
            writer.write(request[start : start + 2**20])
            await writer.drain()

    sending = asyncio.create_task(send())
    try:
        async with asyncio.timeout(60):
            return await reader.readline()
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        writer.transport.abort()


async def cost_s(process: GatewayProcess, request: bytes) -> tuple[int, float]:
    """The status of the answer, and the processor time until the next request is answered."""
    before_s = process.processor_s
    status = int((await answer(process, request)).split()[1])
    await answer(process, b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    return status, (process.processor_s - before_s) / slowness()


async def test_no_request_costs_a_gateway_without_keys_much(tmp_path: Path) -> None:
    async with gateway_process(tmp_path, keys=False) as process:
        costs = {name: await cost_s(process, request) for name, request in hostile_requests().items()}
    assert all(200 <= status < 500 for status, _ in costs.values()), costs
    assert max(seconds for _, seconds in costs.values()) < MOST_S, costs


async def test_hardly_anything_is_spent_on_a_stranger(tmp_path: Path) -> None:
    async with gateway_process(tmp_path, keys=True) as process:
        costs = {name: await cost_s(process, request) for name, request in hostile_requests().items()}
    assert {status for status, _ in costs.values()} == {401}, costs
    assert max(seconds for _, seconds in costs.values()) < MOST_UNKNOWN_S, costs


async def test_no_path_reads_a_body_before_its_key_is_known(tmp_path: Path) -> None:
    """The answer comes although the body never does."""
    (tmp_path / "keys.toml").write_text(table("ada", ADA))
    async with gateway(FakeEngine(), server={"api_keys": tmp_path / "keys.toml"}) as door:
        app = make_app(GatewayConfig(), Servers((), Access.from_environment()), GatewayMetrics())
        paths = [route.resource.canonical for route in app.router.routes() if route.method == "POST" and route.resource]
        assert len(paths) >= 6
        for path in paths:
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"
            reader, writer = await asyncio.open_connection("127.0.0.1", int(door.url.rpartition(":")[2]))
            writer.write(head.encode())
            async with asyncio.timeout(60):
                assert b" 401 " in await reader.readline(), path
            writer.transport.abort()


async def test_a_removed_key_is_forgotten_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sonorant.gateway.upstream.keys.FRESH_S", 0.5)
    keys = tmp_path / "keys.toml"
    keys.write_text(table("ada", ADA))
    async with gateway(FakeEngine(), server={"api_keys": keys}, headers={"X-API-Key": ADA}) as door:
        assert (await door.speak("hello"))[0] == 200
        keys.write_text(table("bob", BOB))

        async def reads_a_body() -> bool:
            async with door.http.post("/v1/audio/speech", data=b"no json") as response:
                return response.status == 400

        await eventually(reads_a_body, False)


async def test_keys_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sonorant.gateway.upstream.keys.MAX_KEYS", 3)
    async with gateway(FakeEngine()) as door, Servers((door.server.address,), Access.from_environment()) as servers:
        await eventually(lambda: servers.serving, True)
        keys = Keys(servers)
        for number in range(10):
            await keys.check(UpstreamCall("mine", key=f"key-{number % 7}"))
        assert len(keys) == 3
