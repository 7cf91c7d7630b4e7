"""A finished sentence is heard to its end while nobody sends more: from real workers, at every door.

`tests/measure/finished_sentences.py` measures how soon.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing

import aiohttp
import grpc
import numpy as np
import pytest

from sonorant.tts.v1 import speak_pb2
from tests.e2e.sentence_doors import TEXT, over_cartesia, over_grpc, over_riva, over_websocket, over_wyoming
from tests.e2e.server_process import ServerProcess
from tests.gateway.gateway_process import GatewayProcess
from tests.service.harness import Stub, config, end, eventually, say, speak


@pytest.fixture(scope="module")
def gateway(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    log = tmp_path_factory.mktemp("gateway") / "log"
    with GatewayProcess(log, "--server", server.address, "--wyoming-listen", "127.0.0.1:0") as process:
        yield process


async def until_ready(http: aiohttp.ClientSession) -> None:
    async def status() -> int:
        async with http.get("/ready") as response:
            return response.status

    await eventually(status, 200)


async def assert_heard_whole(stub: Stub, heard: AsyncIterator[bytes]) -> None:
    """Take as much audio as the whole text has, and compare it. No text is sent meanwhile."""
    whole = np.frombuffer((await speak(stub, [config(), say(TEXT), end()])).pcm["u1"], np.int16)
    pcm = b""
    async with aclosing(heard), asyncio.timeout(60):  # type: ignore[type-var]
        async for audio in heard:
            pcm += audio
            if len(pcm) >= whole.nbytes:
                break
    difference = np.frombuffer(pcm, np.int16).astype(np.int32) - whole
    assert np.abs(difference).max() <= 4, "the same speech, but for rounding"


@pytest.mark.parametrize("mode", [speak_pb2.COMMIT_MODE_TOKEN, speak_pb2.COMMIT_MODE_SENTENCE])
@pytest.mark.parametrize("delay", [{}, {"max_buffer_delay_ms": 200}], ids=["default", "own"])
async def test_over_grpc(stub: Stub, mode: int, delay: dict[str, int]) -> None:
    await assert_heard_whole(stub, over_grpc(stub, mode=mode, **delay))


async def test_over_the_protocol_of_riva(stub: Stub, server: ServerProcess) -> None:
    async with grpc.aio.insecure_channel(server.address) as channel:
        await assert_heard_whole(stub, over_riva(channel))


async def test_over_the_websocket(stub: Stub, gateway: GatewayProcess) -> None:
    async with aiohttp.ClientSession(gateway.url) as http:
        await until_ready(http)
        await assert_heard_whole(stub, over_websocket(http))
        await assert_heard_whole(stub, over_websocket(http, split_granularity="sentence"))


@pytest.mark.parametrize("delay", [{}, {"max_buffer_delay_ms": 200}], ids=["default", "own"])
async def test_over_the_protocol_of_cartesia(stub: Stub, gateway: GatewayProcess, delay: dict[str, int]) -> None:
    async with aiohttp.ClientSession(gateway.url) as http:
        await until_ready(http)
        await assert_heard_whole(stub, over_cartesia(http, **delay))


async def test_over_the_protocol_of_home_assistant(stub: Stub, gateway: GatewayProcess) -> None:
    async with aiohttp.ClientSession(gateway.url) as http:
        await until_ready(http)
    await assert_heard_whole(stub, over_wyoming(gateway.wyoming_port))
