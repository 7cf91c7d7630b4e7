"""POST /v1/audio/speech/batch: vLLM-Omni's several texts in one request."""

import asyncio
import base64
import io
import wave
from typing import Any

from tests.gateway.harness import Door, gateway
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import spoken
from tests.service.harness import eventually


async def batch(door: Door, *items: dict[str, Any], **shared: Any) -> tuple[int, dict[str, Any]]:
    async with door.http.post("/v1/audio/speech/batch", json={"items": items, "seed": 1, **shared}) as response:
        return response.status, await response.json()


async def test_each_text_is_a_wav_file_of_its_own() -> None:
    async with gateway(FakeEngine()) as door:
        status, told = await batch(door, {"input": "one"}, {"input": "two", "seed": 2, "response_format": "pcm"})
    assert status == 200 and (told["total"], told["succeeded"], told["failed"]) == (2, 2, 0)
    first, second = told["results"]
    assert (first["index"], first["media_type"], second["media_type"]) == (0, "audio/wav", "audio/pcm")
    assert first["usage"]["input_tokens"] == 3 and first["usage"]["output_tokens"] == 6
    with wave.open(io.BytesIO(base64.b64decode(first["audio_data"]))) as file:
        assert file.readframes(file.getnframes()) == spoken("one", seed=1)
    assert base64.b64decode(second["audio_data"]) == spoken("two", seed=2)


async def test_one_that_fails_fails_alone() -> None:
    async with gateway(FakeEngine()) as door:
        items = ({"input": "a", "speaker": "bob"}, {"input": " "}, {"input": "a", "voice": "nobody-here"}, {})
        status, told = await batch(door, *items, voice="ada")
    assert status == 200 and (told["succeeded"], told["failed"]) == (1, 3)
    assert [result["status"] for result in told["results"]] == ["success", "error", "error", "error"]
    errors = [result["error"] for result in told["results"][1:]]
    assert errors[0].startswith("input: nothing to say") and "nobody-here" in errors[1] and "input" in errors[2]


async def test_a_batch_is_bounded_and_goes_with_its_caller() -> None:
    engine = FakeEngine()
    async with gateway(engine) as door:
        for items in ((), [{"input": "a"}] * 33):
            status, told = await batch(door, *items)
            assert status == 400 and told["error"]["param"] == "items"
        engine.hold()
        speaking = asyncio.create_task(batch(door, *[{"input": "a"}] * 9))
        await eventually(lambda: len(engine.live), 4)
        speaking.cancel()
        await asyncio.wait([speaking])
        await eventually(lambda: len(engine.live), 0)
        assert engine.num_opened == 4
