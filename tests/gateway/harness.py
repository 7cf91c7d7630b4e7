"""A gateway in front of a real gRPC server, whose engine says what can be checked to the sample."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from sonorant.gateway.processes.serving import Gateway
from sonorant.gateway.settings import GatewayConfig
from tests.service.fake_engine import FakeEngine
from tests.service.harness import Served, eventually, served


@dataclass
class Door:
    """A running gateway and an HTTP client to it."""

    url: str
    http: aiohttp.ClientSession
    drain: asyncio.Event
    running: "asyncio.Task[None]"
    server: Served
    wyoming_port: int

    async def ready(self) -> int:
        async with self.http.get("/ready") as response:
            return response.status

    async def speak(self, text: str, **fields: Any) -> tuple[int, bytes]:
        body = {"input": text, "response_format": "pcm", "seed": 1, **fields}
        async with self.http.post("/v1/audio/speech", json=body) as response:
            return response.status, await response.read()

    async def refusal(self, text: str, **fields: Any) -> tuple[int, dict[str, Any]]:
        body = {"input": text, "response_format": "pcm", **fields}
        async with self.http.post("/v1/audio/speech", json=body) as response:
            return response.status, (await response.json())["error"]


@asynccontextmanager
async def gateway(
    engine: FakeEngine, *, server: dict[str, Any] | None = None, headers: dict[str, str] | None = None, **settings: Any
) -> AsyncIterator[Door]:
    """`server`: settings of the gRPC server; `headers`: of the HTTP client."""
    async with served(engine, **(server or {})) as behind, gateway_to(behind, headers, **settings) as door:
        yield door


@asynccontextmanager
async def gateway_to(behind: Served, headers: dict[str, str] | None = None, **settings: Any) -> AsyncIterator[Door]:
    """`trust`: what the client trusts, of a gateway with TLS."""
    servers, trust = settings.pop("servers", (behind.address,)), settings.pop("trust", None)
    own = Gateway(GatewayConfig(listen="127.0.0.1:0", servers=servers, **settings))
    drain = asyncio.Event()
    running = asyncio.create_task(own.run(drain))
    url = f"https://localhost:{own.port}" if trust else f"http://127.0.0.1:{own.port}"
    # A connection each: the gateway may close one that is idle just when it is used again.
    connector = aiohttp.TCPConnector(force_close=True, ssl=trust or True)
    async with aiohttp.ClientSession(url, headers=headers, connector=connector) as http:
        door = Door(url, http, drain, running, behind, own.wyoming_port)
        try:
            await eventually(door.ready, 200)
            yield door
        finally:
            drain.set()
            running.cancel()
            await asyncio.wait([running])
