"""A finished sentence is heard to its end while nobody sends more: from real workers, at every door."""

import asyncio
import base64
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import aiohttp
import numpy as np
import pytest
from wyoming.audio import AudioChunk
from wyoming.client import AsyncTcpClient
from wyoming.tts import SynthesizeChunk, SynthesizeStart

from sonorant.tts.v1 import speak_pb2
from tests.e2e.server_process import ServerProcess
from tests.gateway.cartesia_client import text as to_cartesia
from tests.gateway.gateway_process import GatewayProcess
from tests.service.harness import Stub, config, end, eventually, say, speak

TEXT = "Let me look that up for you."
SENT = ("Let me", " look that", " up for you", ". ")  # as a language model writes it


@pytest.fixture(scope="module")
def gateway(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    log = tmp_path_factory.mktemp("gateway") / "log"
    with GatewayProcess(log, "--server", server.address, "--wyoming-listen", "127.0.0.1:0") as process:
        yield process


async def until_ready(gateway: GatewayProcess, http: aiohttp.ClientSession) -> None:
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
    settings = config()
    settings.text_policy.MergeFrom(speak_pb2.TextPolicy(mode=mode, **delay))

    async def heard() -> AsyncIterator[bytes]:
        call = stub.Speak()
        await call.write(speak_pb2.SpeakRequest(config=settings))
        for piece in SENT:
            await call.write(say(piece))
        async for response in call:
            yield response.audio.data
        raise AssertionError("it ended")

    await assert_heard_whole(stub, heard())


async def test_over_the_websocket(stub: Stub, gateway: GatewayProcess) -> None:
    async with aiohttp.ClientSession(gateway.url) as http:
        await until_ready(gateway, http)

        async def heard(**fields: Any) -> AsyncIterator[bytes]:
            async with http.ws_connect("/v1/audio/speech/stream") as socket:
                about = {"type": "session.config", "response_format": "pcm", "stream_audio": True}
                await socket.send_json({**about, **fields})
                for piece in SENT:
                    await socket.send_json({"type": "input.text", "text": piece})
                async for message in socket:
                    if message.type is aiohttp.WSMsgType.BINARY:
                        yield message.data

        await assert_heard_whole(stub, heard())
        await assert_heard_whole(stub, heard(split_granularity="sentence"))


@pytest.mark.parametrize("delay", [{}, {"max_buffer_delay_ms": 200}], ids=["default", "own"])
async def test_over_the_protocol_of_cartesia(stub: Stub, gateway: GatewayProcess, delay: dict[str, int]) -> None:
    async with aiohttp.ClientSession(gateway.url) as http:
        await until_ready(gateway, http)

        async def heard() -> AsyncIterator[bytes]:
            async with http.ws_connect("/tts/websocket") as socket:
                for piece in SENT:
                    await socket.send_json(to_cartesia("a", piece, voice={"mode": "id", "id": "default"}, **delay))
                async for message in socket:
                    yield base64.b64decode(message.json().get("data", ""))

        await assert_heard_whole(stub, heard())


async def test_over_the_protocol_of_home_assistant(stub: Stub, gateway: GatewayProcess) -> None:
    async with aiohttp.ClientSession(gateway.url) as http:
        await until_ready(gateway, http)

    async def heard() -> AsyncIterator[bytes]:
        async with AsyncTcpClient("127.0.0.1", gateway.wyoming_port) as client:
            await client.write_event(SynthesizeStart().event())
            for piece in SENT:
                await client.write_event(SynthesizeChunk(piece).event())
            while (event := await client.read_event()) is not None:
                if AudioChunk.is_type(event.type):
                    yield AudioChunk.from_event(event).audio

    await assert_heard_whole(stub, heard())
