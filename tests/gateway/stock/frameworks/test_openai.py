"""OpenAI's own SDK, with nothing changed but the address and the key."""

import asyncio
import base64
import io
import json
from pathlib import Path
from typing import Any

import av
import numpy as np
import openai
import pytest

TEXT = "Good morning. The house is by the river."
WORDS = {"good", "morning", "house", "river"}
LONG = "This is a long story about a house by the river and the people who lived there. " * 40


def sdk(url: str, key: str, **options: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, **options)


def test_the_example_of_its_guide(
    url: str, key: str, hear: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", key)
    client = openai.OpenAI()
    with client.audio.speech.with_streaming_response.create(
        model="gpt-4o-mini-tts", voice="coral", input=TEXT, instructions="Speak in a cheerful and positive tone."
    ) as response:
        response.stream_to_file(tmp_path / "speech.mp3")
    with av.open(io.BytesIO((tmp_path / "speech.mp3").read_bytes())) as file:
        rate_hz = file.streams.audio[0].rate
        pieces = [frame.to_ndarray()[0] for frame in file.decode(audio=0)]
    samples = (np.concatenate(pieces) * 32767).astype(np.int16)
    assert len(hear(samples.tobytes(), rate_hz) & WORDS) >= 2


async def test_events_are_understood(url: str, key: str, hear: Any) -> None:
    async with sdk(url, key) as client:
        create = client.audio.speech.with_streaming_response.create
        async with create(
            model="gpt-4o-mini-tts", voice="coral", input=TEXT, response_format="pcm", stream_format="sse"
        ) as response:
            events = [json.loads(line[6:]) async for line in response.iter_lines() if line.startswith("data: ")]
    *deltas, done = events
    assert len(deltas) > 1 and done["type"] == "speech.audio.done" and done["usage"]["input_tokens"] == len(TEXT)
    assert len(hear(b"".join(base64.b64decode(delta["audio"]) for delta in deltas), 24_000) & WORDS) >= 2


@pytest.mark.parametrize(
    ("error", "fields"),
    [
        (openai.BadRequestError, {"speed": 9.0}),
        (openai.AuthenticationError, {"extra_headers": {"Authorization": "Bearer wrong"}}),
        (openai.NotFoundError, {"voice": "nobody-of-this-name"}),
    ],
)
async def test_errors_are_its_own(url: str, key: str, error: type[openai.APIStatusError], fields: Any) -> None:
    async with sdk(url, key) as client:
        with pytest.raises(error) as caught:
            await client.audio.speech.create(**{"model": "tts-1", "voice": "alloy", "input": TEXT, **fields})
    assert caught.value.body and caught.value.request_id


async def test_who_hangs_up_frees_the_stream_and_who_is_one_too_many_waits_for_it(
    url: str, narrow_key: str, streams: Any, idle: Any
) -> None:
    async with sdk(url, narrow_key, max_retries=0) as client, sdk(url, narrow_key, max_retries=20) as patient:
        create = client.audio.speech.with_streaming_response.create
        async with create(model="tts-1", voice="alloy", input=LONG, response_format="pcm") as response:
            audio = response.iter_bytes()
            assert await anext(audio)
            assert streams() == 1, "audio comes before all of it is made"
            with pytest.raises(openai.RateLimitError):
                await client.audio.speech.create(model="tts-1", voice="alloy", input=TEXT)
            waiting = asyncio.create_task(patient.audio.speech.create(model="tts-1", voice="alloy", input=TEXT))
            await asyncio.sleep(0.1)
            assert not waiting.done()
            await audio.aclose()  # type: ignore[attr-defined]
        assert (await waiting).content
        await idle()
