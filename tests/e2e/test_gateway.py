"""What comes out of the doors of a real gateway before a real server, as a recognizer hears it."""

import asyncio
from collections.abc import Iterator

import aiohttp
import numpy as np
import pytest
import soxr
from wyoming.audio import AudioChunk, AudioStop
from wyoming.client import AsyncTcpClient
from wyoming.tts import SynthesizeChunk, SynthesizeStart, SynthesizeStop, SynthesizeStopped

from tests.e2e.server_process import ServerProcess
from tests.gateway.gateway_process import GatewayProcess
from tests.service.harness import eventually

pytest.importorskip("pocketsphinx")
from tests.doors.judge import HEARING_HZ, assert_idle, assert_says

pytestmark = pytest.mark.slow

TEXT = "Good morning. The house is by the river."


@pytest.fixture(scope="module")
def gateway(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    log = tmp_path_factory.mktemp("gateway") / "log"
    with GatewayProcess(log, "--server", server.address, "--wyoming-listen", "127.0.0.1:0") as process:
        asyncio.run(until_ready(process))
        yield process


async def until_ready(gateway: GatewayProcess) -> None:
    async with aiohttp.ClientSession(gateway.url) as http:

        async def status() -> int:
            async with http.get("/ready") as response:
                return response.status

        await eventually(status, 200)


def at_hearing_rate(pcm: bytes, rate_hz: int) -> bytes:
    return soxr.resample(np.frombuffer(pcm, np.int16), rate_hz, HEARING_HZ).astype(np.int16).tobytes()


async def test_openai_is_understood(gateway: GatewayProcess, server: ServerProcess) -> None:
    body = {"input": TEXT, "response_format": "pcm", "sample_rate": HEARING_HZ}
    async with aiohttp.ClientSession(gateway.url) as http, http.post("/v1/audio/speech", json=body) as response:
        assert response.status == 200
        assert_says(await response.read(), TEXT)
    await assert_idle(server.address)


async def test_wyoming_is_understood_and_sounds_before_its_text_ends(
    gateway: GatewayProcess, server: ServerProcess
) -> None:
    first, rest = TEXT[:27], TEXT[27:]
    pcm = b""
    async with AsyncTcpClient("127.0.0.1", gateway.wyoming_port) as client, asyncio.timeout(60):
        await client.write_event(SynthesizeStart().event())
        await client.write_event(SynthesizeChunk(first).event())
        while not pcm:  # not a word more until it speaks
            event = await client.read_event()
            assert event is not None
            pcm += AudioChunk.from_event(event).audio if AudioChunk.is_type(event.type) else b""
        await client.write_event(SynthesizeChunk(rest).event())
        await client.write_event(SynthesizeStop().event())
        kinds = []
        while SynthesizeStopped().event().type not in kinds:
            event = await client.read_event()
            assert event is not None
            kinds.append(event.type)
            pcm += AudioChunk.from_event(event).audio if AudioChunk.is_type(event.type) else b""
    assert kinds.count(AudioStop().event().type) == 1
    assert_says(at_hearing_rate(pcm, 24_000), TEXT)
    await assert_idle(server.address)
