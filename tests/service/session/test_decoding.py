"""Who may decode, how much at once, and how fast it comes: stored speech is let in, charged and paced as speech is."""

from dataclasses import replace
from pathlib import Path

import grpc
import numpy as np
import pytest

from sonorant.engine import EngineState
from sonorant.service.audio.codes import CodesHeader, Kind, record
from sonorant.tts.v1.text_to_speech_service_pb2 import DecodeRequest, SynthesizeRequest
from tests.service.fake_engine import NUM_STORED, FakeEngine
from tests.service.fake_speech import FRAME_SAMPLES
from tests.service.harness import eventually, failure, served
from tests.service.keys import ADA, BOB, bearer, table


def stored(num_frames: int, pause_ms: int = 0) -> bytes:
    """Of the fake engine."""
    header = CodesHeader.of(FakeEngine().info)
    codes = np.arange(num_frames * 4, dtype=np.int16).reshape(-1, 4) % 64
    pause = record(Kind.PAUSE, pause_ms) if pause_ms else b""
    return header.to_bytes() + record(Kind.SEGMENT, num_frames, header.pack(codes)) + pause


async def test_a_key_is_charged_for_as_much_text_as_it_would_have_been(tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text(table("ada", ADA, "max_text_chars_per_minute = 100") + table("bob", BOB))
    async with served(FakeEngine(), api_keys=keys) as server:
        assert (await failure(server.stub.Decode(DecodeRequest(codes=stored(1)))))[0].name == "UNAUTHENTICATED"
        five_seconds = DecodeRequest(codes=stored(50, pause_ms=1000))
        async for _ in server.stub.Decode(five_seconds, metadata=bearer(ADA)):  # 75 characters
            pass
        code, _, details = await failure(server.stub.Decode(five_seconds, metadata=bearer(ADA)))
        assert code.name == "RESOURCE_EXHAUSTED" and details["RetryInfo"].retry_delay.seconds > 0
        request = SynthesizeRequest(text="x" * 40)
        assert (await failure(server.stub.Synthesize(request, metadata=bearer(ADA))))[0].name == "RESOURCE_EXHAUSTED"
        async for _ in server.stub.Decode(five_seconds, metadata=bearer(BOB)):
            pass


@pytest.mark.parametrize("forged", [{"frame_samples": 1}, {"sample_rate_hz": 2**32 - 1}, {"bits": 7}])
async def test_a_header_that_would_be_charged_less_is_refused(forged: dict[str, int]) -> None:
    header = replace(CodesHeader.of(FakeEngine().info), **forged)
    codes = np.zeros((500, header.num_codebooks), np.int16)
    request = DecodeRequest(codes=header.to_bytes() + record(Kind.SEGMENT, 500, header.pack(codes)))
    async with served(FakeEngine()) as server:
        code, message, details = await failure(server.stub.Decode(request))
        assert (code.name, details["ErrorInfo"].reason) == ("INVALID_ARGUMENT", "CODES_UNREADABLE"), message


async def test_places_of_calls_and_of_the_engine_are_given_back() -> None:
    engine = FakeEngine()
    async with served(engine, max_sessions=NUM_STORED + 1) as server:
        request = DecodeRequest(codes=stored(500), max_lead_ms=100)
        calls = [server.stub.Decode(request) for _ in range(NUM_STORED)]
        for call in calls:
            assert (await call.read()).HasField("started")
        code, message, details = await failure(server.stub.Decode(request))
        assert (code.name, details["ErrorInfo"].reason) == ("RESOURCE_EXHAUSTED", "ENGINE_OVERLOADED"), message
        for call in calls:
            call.cancel()
        await eventually(lambda: len(engine.stored), 0)
        engine.enter(EngineState.RESTARTING)
        assert (await failure(server.stub.Decode(request)))[0].name == "UNAVAILABLE"


@pytest.mark.parametrize("max_lead_ms", [0, 800])
async def test_it_is_decoded_no_further_ahead_than_its_listener_is_served(max_lead_ms: int) -> None:
    """A reader who takes nothing has the engine decode so much, and then nothing more."""
    engine = FakeEngine()
    async with served(engine) as server:
        call = server.stub.Decode(DecodeRequest(codes=stored(16_000), max_lead_ms=max_lead_ms))
        assert (await call.read()).started.audio_ms == 1_280_000
        assert (await call.read()).audio.num_samples
        (stream,) = engine.stored
        sent = 0
        for _ in range(5 if max_lead_ms else 20):
            sent += (await call.read()).audio.num_samples
        assert sent // FRAME_SAMPLES <= stream.num_decoded
        assert stream.num_decoded < (1000 if max_lead_ms else 16_000)  # of 80 s, of all 21 minutes
        call.cancel()
        await eventually(lambda: len(engine.stored), 0)


async def test_audio_comes_with_its_budget_and_trailers(tmp_path: Path) -> None:
    async with served(FakeEngine()) as server:
        call = server.stub.Decode(DecodeRequest(codes=stored(25), config={"audio": {"sample_rate_hz": 8000}}))
        responses = [response async for response in call]
        assert sum(response.audio.num_samples for response in responses) == 25 * 640
        assert dict(await call.trailing_metadata())["x-audio-ms"] == "2000"
        omitted = server.stub.Decode(DecodeRequest(codes=stored(25)), metadata=(("x-audio-omit", "1"),))
        chunks = [response.audio async for response in omitted if response.HasField("audio")]
        assert sum(chunk.num_samples for chunk in chunks) == 25 * 1920 and not any(chunk.data for chunk in chunks)
        assert await omitted.code() is grpc.StatusCode.OK
