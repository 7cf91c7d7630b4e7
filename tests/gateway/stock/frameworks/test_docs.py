"""The snippets of docs/moving.md for these frameworks make services that speak."""

import re
from pathlib import Path
from typing import Any

import pytest
from livekit.agents import APIConnectOptions
from pipecat.frames.frames import TTSAudioRawFrame, TTSSpeakFrame
from pipecat.tests.utils import SleepFrame, run_test

MOVING = (Path(__file__).parents[4] / "docs/moving.md").read_text(encoding="utf-8")


def services(framework: str, url: str, key: str) -> list[Any]:
    made = []
    for text in re.findall(rf"^```python {framework}\n(.*?)^```$", MOVING, re.MULTILINE | re.DOTALL):
        names: dict[str, Any] = {}
        exec(text.replace("HOST:8000", url.removeprefix("http://")).replace('"KEY"', repr(key)), names)
        made.append(names["tts"])
    assert len(made) == 2
    return made


async def test_pipecat(url: str, key: str) -> None:
    for service in services("pipecat", url, key):
        down, up = await run_test(service, frames_to_send=[TTSSpeakFrame("Hello, world."), SleepFrame(3)])
        assert not up and any(isinstance(frame, TTSAudioRawFrame) for frame in down), service


async def test_livekit(url: str, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import aiohttp
    from livekit.agents.utils import http_context

    async with aiohttp.ClientSession() as session:
        monkeypatch.setattr(http_context, "http_session", lambda: session)
        for service in services("livekit", url, key):
            stream = service.synthesize("Hello, world.", conn_options=APIConnectOptions(max_retry=0, timeout=10))
            async with stream:
                assert [event async for event in stream], service
            await service.aclose()
