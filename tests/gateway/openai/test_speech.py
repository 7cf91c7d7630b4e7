"""POST /v1/audio/speech: to the sample where the format allows it, and with OpenAI's own SDK."""

import asyncio
import base64
import io
import json
import time
from typing import TYPE_CHECKING, Any

import aiohttp
import av
import numpy as np
import pytest

from sonorant.engine import FinishReason
from tests.gateway.harness import gateway
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import spoken
from tests.service.harness import eventually
from tests.service.keys import ADA, table

if TYPE_CHECKING:
    import openai  # takes seconds, which test processes without these tests need not spend

TEXT = "to the sample"


def sdk(url: str, key: str = "none", **options: Any) -> "openai.AsyncOpenAI":
    import openai

    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, **options)


def decoded(data: bytes) -> tuple[int, int, np.ndarray[Any, np.dtype[np.float64]]]:
    """Rate, number of samples, loudness of each tenth of a second."""
    with av.open(io.BytesIO(data)) as container:
        rate = container.streams.audio[0].rate
        samples = np.concatenate([frame.to_ndarray()[0] for frame in container.decode(audio=0)]).astype(np.float64)
    return rate, len(samples), samples


async def test_pcm_is_the_servers_own_to_the_sample() -> None:
    async with gateway(FakeEngine()) as door:
        assert await door.speak(TEXT) == (200, spoken(TEXT, seed=1))


async def test_audio_may_keep_pace_with_its_listener() -> None:
    played_s = len(spoken("pace")) / 2 / 24_000
    async with gateway(FakeEngine()) as door:
        for fields in ({}, {"stream_format": "sse"}):
            began_s = time.monotonic()
            await door.speak("pace", max_lead_ms=100, **fields)
            assert time.monotonic() - began_s > played_s - 0.2  # the lead, and a chunk


async def test_every_format_has_all_of_the_audio_and_can_be_decoded_as_it_comes() -> None:
    expected = len(spoken(TEXT)) // 2 / 24_000
    async with gateway(FakeEngine()) as door, sdk(door.url) as client:
        for name, content_type, slack_s in (
            ("mp3", "audio/mpeg", 0.15),
            ("opus", "audio/ogg", 0.001),
            ("aac", "audio/aac", 0.15),
            ("flac", "audio/flac", 0.0),
            ("wav", "audio/wav", 0.0),
        ):
            create = client.audio.speech.with_streaming_response.create
            async with create(model="tts-1", voice="alloy", input=TEXT, response_format=name) as response:
                assert response.headers["content-type"] == content_type
                data = await response.read()
            rate, count, _ = decoded(data)
            assert expected - 0.001 <= count / rate <= expected + slack_s, name


async def test_mp3_is_what_nobody_asked_for_unless_the_gateway_was_told_so() -> None:
    async with gateway(FakeEngine()) as door, door.http.post("/v1/audio/speech", json={"input": "a"}) as response:
        assert response.content_type == "audio/mpeg"
    async with (
        gateway(FakeEngine(), default_format="wav") as door,
        door.http.post("/v1/audio/speech", json={"input": "a"}) as response,
    ):
        assert response.content_type == "audio/wav"


async def test_events_carry_base64_and_end_with_the_usage() -> None:
    async with gateway(FakeEngine()) as door:
        for fields in ({"stream_format": "sse"}, {"stream": True}):
            status, data = await door.speak(TEXT, **fields)
            events = [json.loads(line.removeprefix("data: ")) for line in data.decode().split("\n\n") if line]
            assert status == 200 and events[-1]["type"] == "speech.audio.done"
            assert events[-1]["usage"] == {"input_tokens": 13, "output_tokens": 26, "total_tokens": 39}
            assert {event["type"] for event in events[:-1]} == {"speech.audio.delta"}
            assert b"".join(base64.b64decode(event["audio"]) for event in events[:-1]) == spoken(TEXT, seed=1)
        assert await door.speak(TEXT, stream=True, stream_format="audio") == (200, spoken(TEXT, seed=1))


async def test_audio_comes_before_all_of_it_is_made() -> None:
    engine = FakeEngine(frame_s=0.02)
    async with gateway(engine) as door, sdk(door.url) as client:
        create = client.audio.speech.with_streaming_response.create
        async with create(model="tts-1", voice="nova", input=TEXT * 4, response_format="pcm") as response:
            async for _ in response.iter_bytes():
                assert engine.live, "nothing came before the end"
                break


async def test_a_text_without_anything_to_say_is_silence_and_a_blank_one_an_error() -> None:
    async with gateway(FakeEngine()) as door:
        assert await door.speak("...") == (200, bytes(24_000 * 20 // 1000 * 2))
        status, data = await door.speak("...", response_format="mp3")
        assert status == 200 and decoded(data)[1] >= 480
        assert (await door.speak(" \n"))[0] == 400


async def test_words_times_come_in_a_header() -> None:
    async with gateway(FakeEngine()) as door:
        body = {"input": TEXT, "response_format": "wav", "word_timestamps": True, "seed": 1}
        async with door.http.post("/v1/audio/speech", json=body) as response:
            times = json.loads(response.headers["X-Word-Timestamps"])
            data = await response.read()
        assert [each["word"] for each in times] == TEXT.split()
        assert times[0]["start_ms"] <= times[0]["end_ms"] <= times[1]["start_ms"]
        assert data[44:] == spoken(TEXT, seed=1)
        assert int.from_bytes(data[40:44], "little") == len(data) - 44


async def test_settings_of_qwen_and_sglang_reach_the_engine() -> None:
    engine = FakeEngine()
    fields = {
        "task_type": "CustomVoice",
        "voice": "Bob",
        "language": "German",
        "instructions": "slowly",
        "max_new_tokens": 7,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 3,
        "repetition_penalty": 1.2,
        "initial_codec_chunk_frames": 2,
        "something_else": True,
    }
    async with gateway(engine) as door:
        assert (await door.speak(TEXT, **fields))[0] == 200
        assert (await door.speak(TEXT, voice={"id": "ada"}, temperature=0, seed=-1))[0] == 200
    first, second = engine.opened
    assert (first.speaker, first.language, first.instruct) == ("bob", "german", "slowly")
    assert (first.sampling.max_frames, first.sampling.top_k, first.sampling.seed) == (7, 3, 1)
    assert first.sampling.temperature == pytest.approx(0.5) and first.sampling.top_p == pytest.approx(0.9)
    assert (second.speaker, second.sampling.do_sample, second.sampling.seed) == ("ada", False, 2**32 - 1)


async def test_openais_names_are_voices_of_the_server() -> None:
    engine = FakeEngine()
    async with gateway(engine) as door:
        for name in ("alloy", "ash", "default"):
            assert (await door.speak("a", voice=name))[0] == 200
    assert [params.speaker for params in engine.opened] == ["ada", "bob", "ada"]


async def test_recordings_are_cloned_and_links_never_followed() -> None:
    engine = FakeEngine(task="base")
    uri = "data:audio/wav;base64," + base64.b64encode(b"a recording").decode()
    async with gateway(engine) as door:
        assert (await door.speak(TEXT, ref_audio=uri, ref_text="hello"))[0] == 200
        assert (await door.speak(TEXT, references=[{"audio_path": uri, "text": "hello"}], x_vector_only_mode=True))[
            0
        ] == 200
        for link in ("http://169.254.169.254/", "file:///etc/passwd", "/etc/passwd", "data:audio/wav,raw"):
            status, error = await door.refusal(TEXT, ref_audio=link)
            assert (status, error["param"]) == (400, "ref_audio") and "only data: URIs" in error["message"]
        assert (await door.refusal(TEXT, ref_audio="data:audio/wav;base64,***"))[0] == 400
        for empty in ("", "data:audio/wav;base64,", [""]):  # never the default voice
            status, error = await door.refusal(TEXT, ref_audio=empty)
            assert (status, error["param"]) == (400, "ref_audio") and "ref_audio: empty" in error["message"]
        head, _, data = uri.partition(",")
        broken = "\r\n".join(data[at : at + 20] for at in range(0, len(data), 20))
        for written in (broken, data.rstrip("="), data.replace("=", "%3D").replace("+", "%2B"), f" {data}\n"):
            assert (await door.speak(TEXT, ref_audio=f"{head},{written}", ref_text="hello"))[0] == 200
        for label in ("my label", "alloy", "ada", "小明"):
            assert (await door.speak(TEXT, ref_audio=uri, ref_text="hello", voice=label))[0] == 200
    with_codes, without, *_ = engine.opened
    assert with_codes.reference_codes is not None and without.reference_codes is None


async def test_tasks_that_do_not_fit_the_request_are_refused() -> None:
    async with gateway(FakeEngine(task="voice_design")) as door:
        assert (await door.speak(TEXT, task_type="VoiceDesign", instructions="a low voice"))[0] == 200
        assert (await door.speak(TEXT, instructions="a low voice", voice="alloy"))[0] == 200
        for fields in (
            {"task_type": "VoiceDesign"},
            {"task_type": "VoiceDesign", "instructions": "low", "voice": "vivian"},
            {"task_type": "Base"},
            {"task_type": "CustomVoice", "speaker_embedding": [0.0]},
            {"task_type": "Singing"},
        ):
            assert (await door.refusal(TEXT, **fields))[0] == 400, fields


@pytest.mark.parametrize(
    ("fields", "status", "param", "code"),
    [
        ({"top_k": 2**32}, 400, "top_k", "invalid_value"),
        ({"sample_rate": 2**32}, 400, "sample_rate", "invalid_value"),
        ({"max_lead_ms": 600_001}, 400, "max_lead_ms", "invalid_field"),
        ({"model": "gpt-7"}, 404, "model", "model_not_found"),
        ({"voice": "nobody"}, 404, "voice", "voice_not_found"),
        ({"speed": 3.9}, 400, "speed", "invalid_field"),
        ({"temperature": -1}, 400, "temperature", "invalid_field"),
        ({"response_format": "midi"}, 400, "response_format", "invalid_value"),
        ({"max_new_tokens": 5000}, 400, "max_new_tokens", "invalid_value"),
        ({"sample_rate": 11_025}, 400, "sample_rate", "invalid_field"),
        ({"seed": "one"}, 400, "seed", "invalid_value"),
        ({"input": "a" * 100_001}, 400, "input", "text_too_long"),
        ({"input": None}, 400, "input", "invalid_value"),
        ({"language": "klingon"}, 400, "language", "invalid_field"),
    ],
)
async def test_errors_have_openais_shape(fields: dict[str, Any], status: int, param: str, code: str) -> None:
    async with gateway(FakeEngine()) as door:
        text = fields.pop("input", TEXT)
        got, error = await door.refusal(text, **fields)
    assert (got, error["param"], error["code"]) == (status, param, code)
    assert error["type"] and error["message"].startswith(param)
    assert code != "voice_not_found" or error["message"].endswith("; GET /v1/audio/voices tells which there are")


async def test_the_sdk_raises_its_own_errors(tmp_path: Any) -> None:
    import openai

    keys = tmp_path / "keys.toml"
    keys.write_text(table("ada", ADA, 'max_sessions = 1\nvoices = ["ada"]'))
    engine = FakeEngine()
    async with gateway(engine, server={"api_keys": keys}) as door:

        async def error_of(key: str, voice: str = "ada", **fields: Any) -> "openai.APIStatusError":
            async with sdk(door.url, key) as client:
                with pytest.raises(openai.APIStatusError) as caught:
                    await client.audio.speech.create(model="tts-1", voice=voice, input=TEXT, **fields)
                return caught.value

        assert isinstance(await error_of("wrong"), openai.AuthenticationError)
        assert isinstance(await error_of(ADA, "bob"), openai.PermissionDeniedError)
        assert isinstance(await error_of(ADA, speed=4), openai.BadRequestError)
        missing = await error_of(ADA, extra_body={"model": "gpt-7"})
        assert isinstance(missing, openai.NotFoundError) and missing.request_id
        engine.hold()
        async with sdk(door.url, ADA) as client:
            first = asyncio.create_task(client.audio.speech.create(model="tts-1", voice="ada", input=TEXT))
            await eventually(lambda: len(engine.live), 1)
            busy = await error_of(ADA)
            assert isinstance(busy, openai.RateLimitError) and float(busy.response.headers["retry-after"]) >= 0.5
            # With retries, as the SDK has them by default, the call waits for its place.
            patient = sdk(door.url, ADA).with_options(max_retries=5)
            second = asyncio.create_task(patient.audio.speech.create(model="tts-1", voice="ada", input=TEXT))
            engine.release()
            assert (await first).response.status_code == (await second).response.status_code == 200
            await patient.close()


async def test_models_are_listed_and_found(tmp_path: Any) -> None:
    import openai

    async with gateway(FakeEngine()) as door, sdk(door.url) as client:
        assert [model.id async for model in client.models.list()] == ["fake", "tts-1", "tts-1-hd", "gpt-4o-mini-tts"]
        assert (await client.models.retrieve("Somebody/FAKE")).object == "model"
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("other")


async def test_a_failure_in_mid_stream_cuts_the_connection_off() -> None:
    for fields in ({}, {"stream_format": "sse"}):
        engine = FakeEngine(frame_s=0.01)
        async with gateway(engine) as door:
            body = {"input": TEXT * 8, "response_format": "pcm", **fields}
            async with door.http.post("/v1/audio/speech", json=body) as response:
                await response.content.readany()
                for stream in list(engine.live.values()):
                    stream.end(FinishReason.FAILED, "the engine lost it")
                with pytest.raises(aiohttp.ClientError):
                    await response.read()


async def test_a_listener_who_hangs_up_frees_the_stream() -> None:
    engine = FakeEngine(frame_s=0.01)
    async with gateway(engine) as door:
        response = await door.http.post("/v1/audio/speech", json={"input": TEXT * 20, "response_format": "pcm"})
        await response.content.readany()
        assert len(engine.live) == 1
        response.close()
        await eventually(lambda: len(engine.live), 0, 5.0)
        engine.hold()  # before the first audio, too
        waiting = asyncio.create_task(door.speak(TEXT))
        await eventually(lambda: len(engine.live), 1)
        waiting.cancel()
        await eventually(lambda: len(engine.live), 0, 5.0)
