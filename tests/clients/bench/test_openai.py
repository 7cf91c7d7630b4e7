"""The same measurements over HTTP, on a server that sends PCM at known times."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from aiohttp import web

from sonorant.bench.http_speech import http_speaker
from sonorant.bench.loads import Load, Share, SpokenLoad, Target
from sonorant.bench.measure import measure
from sonorant.bench.reporting.statistics import Row, row
from sonorant.bench.voices import Voices

FIRST_S, LATE_S = 0.1, 0.15
CHUNK = (np.resize([3000, -3000], 2400)).astype("<i2").tobytes()  # 0.1 s


class SpeechServer:
    """Audio after FIRST_S; the second chunk comes LATE_S after the first has been heard; the third at once."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.second_s: list[float] = []  # after a request came, when its second chunk was sent

    async def speak(self, request: web.Request) -> web.StreamResponse:
        came_s = time.monotonic()
        self.bodies.append(await request.json())
        self.keys.append(request.headers.get("Authorization"))
        if self.bodies[-1]["model"] == "missing":
            return web.Response(status=404, text="no such model")
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.sleep(FIRST_S)
        await response.write(CHUNK[:-1])  # the last sample comes in two pieces
        await asyncio.sleep(0.1 + LATE_S)
        self.second_s.append(time.monotonic() - came_s)
        await response.write(CHUNK[-1:] + CHUNK)
        await response.write(CHUNK)
        return response


@asynccontextmanager
async def speech_server() -> AsyncIterator[tuple[str, SpeechServer]]:
    speech = SpeechServer()
    app = web.Application()
    app.router.add_post("/v1/audio/speech", speech.speak)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1", speech
    finally:
        await runner.cleanup()


async def run(url: str, model: str = "a-model", **body: object) -> Row:
    target = Target("openai", url, model, tuple(body.items()))
    load = Load("closed", 2, seconds=1.0, warm_up_s=0.2)
    speech = SpokenLoad(("One.", "Two."), seed=0, voices=Voices(name="anna"))
    async with http_speaker(target, speech) as speaker:
        part = await measure(Share(target, load, speech, 5.0, 10, 0, 1), speaker, time.monotonic())
    return row(str(target), load, 0, [part], 1000.0)


async def test_times_gaps_and_audio_are_those_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    async with speech_server() as (url, server):
        measured = await run(url, task="speak")
    assert measured["failed"] == 0 and measured["ok"] >= 4
    second_ms = 1000 * min(server.second_s)
    assert FIRST_S * 1000 <= measured["ttfa_ms_p50"] <= measured["audible_ms_p50"] < second_ms
    assert measured["mean_audio_s"] == pytest.approx(0.3)
    assert measured["underruns"] == 1
    between_ms = second_ms - FIRST_S * 1000  # of which a part was heard, and is no gap
    assert LATE_S * 1000 - 20 < measured["gap_ms_p50"] < between_ms
    assert measured["c50"] == 0 < measured["c200"]
    assert server.bodies[0] | {"input": ""} == {
        "model": "a-model",
        "input": "",
        "voice": "anna",
        "response_format": "pcm",
        "stream": True,
        "stream_format": "audio",
        "task": "speak",
    }
    assert {body["input"] for body in server.bodies} == {"One.", "Two."}
    assert set(server.keys) == {"Bearer secret"}


async def test_a_refusal_is_a_failure_with_its_status() -> None:
    async with speech_server() as (url, _):
        measured = await run(url, model="missing")
    assert measured["ok"] == 0 and set(measured["failures"]) == {"HTTP_404"}
    assert measured["messages"] == ["no such model"]


async def test_no_server_is_a_failure() -> None:
    measured = await run("http://127.0.0.1:9/v1")
    assert measured["ok"] == 0 and set(measured["failures"]) == {"ClientConnectorError"}
    assert "127.0.0.1:9" in json.dumps(measured["messages"])
