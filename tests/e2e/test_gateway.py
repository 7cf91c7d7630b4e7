"""What comes out of the doors of a real gateway before a real server, as a recognizer and `sonorant bench` hear it."""

import asyncio
import time
from collections.abc import Iterator

import aiohttp
import numpy as np
import pytest
import soxr
from wyoming.audio import AudioChunk, AudioStop
from wyoming.client import AsyncTcpClient
from wyoming.tts import SynthesizeChunk, SynthesizeStart, SynthesizeStop, SynthesizeStopped

from sonorant.bench.arguments import OPENAI_BY
from sonorant.bench.http_speech import http_speaker
from sonorant.bench.loads import Load, Protocol, Share, SpokenLoad, Target
from sonorant.bench.measure import measure
from sonorant.bench.reporting.statistics import Row, row
from sonorant.client import SpeechClient, synthesis_config
from tests.e2e.server_process import ServerProcess
from tests.gateway.gateway_process import GatewayProcess
from tests.service.harness import eventually

pytest.importorskip("pocketsphinx")
from tests.doors.judge import HEARING_HZ, assert_idle, assert_says

pytestmark = pytest.mark.slow

TEXT = "Good morning. The house is by the river."
LONG_TEXT = (  # two segments
    "The train to the coast leaves at nine. Nobody has told the others yet. We can have breakfast in the kitchen.\n\n"
    "Please bring the red umbrella and a warm coat. It may rain in the evening, and the last bus is often late."
)


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


async def test_words_by_websocket_sound_as_the_whole_text_in_the_same_layout(
    gateway: GatewayProcess, server: ServerProcess
) -> None:
    about = {"type": "session.config", "voice": "linden", "response_format": "pcm", "stream_audio": True}
    words, pcm = LONG_TEXT.split(" "), b""
    async with aiohttp.ClientSession(gateway.url) as http, http.ws_connect("/v1/audio/speech/stream") as socket:
        await socket.send_json(about)
        for word in words:
            await socket.send_json({"type": "input.text", "text": f"{word} "})
        await socket.send_json({"type": "input.done"})
        while (message := await socket.receive(timeout=60)).type is not aiohttp.WSMsgType.TEXT or (
            message.json()["type"] != "session.done"
        ):
            pcm += message.data if message.type is aiohttp.WSMsgType.BINARY else b""
    async with SpeechClient(server.address) as client:
        settings = synthesis_config(voice="linden", non_streaming_mode=False)
        explained = await client.explain(LONG_TEXT, settings)
        assert len(explained.segments) == 2
        clip = await client.synthesize(LONG_TEXT, settings)
    assert pcm == clip.audio


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


async def measured(protocol: Protocol, url: str, load: Load, max_lead_ms: int = 0, **body: object) -> Row:
    target = Target(protocol, url, "tts-1", tuple(body.items()))
    speech = SpokenLoad(("The house is by the river.",), seed=0, max_lead_ms=max_lead_ms)
    async with http_speaker(target, speech) as speaker:
        part = await measure(Share(target, load, speech, 30.0, 10, 0, 1), speaker, time.monotonic())
    return row(str(target), load, 0, [part], 1000.0)


async def test_each_protocol_of_the_gateway_is_a_load_that_gets_whole_utterances(
    gateway: GatewayProcess, server: ServerProcess
) -> None:
    load = Load("closed", 2, seconds=3.0, warm_up_s=0.2)  # on a busy machine an utterance takes its time
    rows = {by: await measured(OPENAI_BY[by], f"{gateway.url}/v1", load, seed=1) for by in OPENAI_BY}
    for by, found in rows.items():
        assert found["failed"] == 0 and found["ok"] >= 2, (by, found["messages"])
        assert 0.8 < found["mean_audio_s"] < 4 and found["ttfa_ms_p50"] > 0, by
    bytes_s, events_s = (rows[by]["mean_audio_s"] for by in ("bytes", "events"))
    assert bytes_s == pytest.approx(events_s, abs=0.001), "the same text with the same seed"
    await assert_idle(server.address)


@pytest.mark.parametrize("by, most_s", [("websocket", 4.5), ("bytes", 7.0)])
async def test_listeners_hear_one_utterance_after_another(
    by: str, most_s: float, gateway: GatewayProcess, server: ServerProcess
) -> None:
    load = Load("paced", 2, seconds=3.0, warm_up_s=0.2)
    found = await measured(OPENAI_BY[by], f"{gateway.url}/v1", load, max_lead_ms=500)
    assert (found["failed"], found["ok"]) == (0, 2), found["messages"]
    heard = "more than an utterance of 1.8 s, and the time that went by, its lead, or the rest of one"
    assert 1.9 < found["mean_audio_s"] < most_s, heard
    await assert_idle(server.address)


@pytest.mark.parametrize("by", OPENAI_BY)
async def test_what_the_gateway_refuses_is_a_failed_row(by: str, gateway: GatewayProcess) -> None:
    voice = {"id": "nobody"} if by == "cartesia" else "nobody"
    found = await measured(OPENAI_BY[by], f"{gateway.url}/v1", Load("closed", 1, 0.3, 0.1), voice=voice)
    assert found["ok"] == 0 and found["failed"] and "nobody" in " ".join(found["messages"])
