"""Silence that a flush asks for."""

import pytest

from sonorant.tts.v1 import audio_pb2, speak_pb2, synthesis_pb2
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import spoken
from tests.service.harness import Transcript, cancel, config, flush, read_all, read_until, say, served, speak

SEED = {"seed": 7}


def pause(pause_ms: int, flush_id: int = 1, utterance_id: str = "") -> speak_pb2.SpeakRequest:
    return speak_pb2.SpeakRequest(flush={"flush_id": flush_id, "pause_ms": pause_ms}, utterance_id=utterance_id)


def silence(milliseconds: int) -> bytes:
    return bytes(milliseconds * 48)


async def test_a_pause_is_as_long_as_asked_for_and_part_of_the_utterance() -> None:
    async with served(FakeEngine()) as server:
        settings = config(sampling=SEED)
        settings.timestamps = synthesis_pb2.TIMESTAMP_MODE_PROGRESS
        transcript = await speak(server.stub, [settings, say("ab"), pause(333), say("cd "), pause(1000, 2), say("ef")])
        parts = spoken("ab", 7), silence(333), spoken("cd ", 7), silence(1000), spoken("ef", 7)
        assert transcript.pcm["u1"] == b"".join(parts)
        told = [r.flush_done.audio_ms for r in transcript.responses if r.HasField("flush_done")]
        assert told == [sum(map(len, parts[:2])) // 48, sum(map(len, parts[:4])) // 48]
        stats = transcript.done["u1"].stats
        assert stats.sent_ms == sum(map(len, parts)) // 48
        assert stats.audio_ms == stats.sent_ms - 1333, "the engine made no silence"
        starts = {mark.text: mark.start_ms for mark in transcript.marks["u1"]}
        assert starts["cd"] >= told[0] and starts["ef"] >= told[1], "words begin after the pause before them"


async def test_there_is_no_pause_before_the_first_words_nor_without_a_flush() -> None:
    async with served(FakeEngine()) as server:
        requests = [config(sampling=SEED), say(" ", "x"), pause(500, 1, "x"), say("ab", "x")]
        transcript = await speak(server.stub, [*requests, flush(2, "x"), say(" ", "x"), pause(100, 3, "x")])
        assert transcript.pcm["x"] == spoken("ab", 7) + silence(100)
        assert [r.flush_done.flush_id for r in transcript.responses if r.HasField("flush_done")] == [1, 2, 3]


@pytest.mark.parametrize(
    "audio",
    [
        {"sample_rate_hz": 8000, "encoding": audio_pb2.AUDIO_ENCODING_MULAW},
        {"encoding": audio_pb2.AUDIO_ENCODING_OGG_OPUS},
        {"encoding": audio_pb2.AUDIO_ENCODING_WAV, "sample_rate_hz": 48_000},
    ],
)
@pytest.mark.parametrize("speed", [0.5, 2.0])
async def test_a_pause_lasts_as_long_at_any_speed_and_in_any_encoding(audio: dict[str, int], speed: float) -> None:
    async with served(FakeEngine()) as server:
        sent_ms = []
        for pause_ms in (0, 700):
            call = server.stub.Speak()
            await call.write(speak_pb2.SpeakRequest(config=config(audio=audio, speed=speed)))
            for request in (say("abc"), pause(pause_ms), say("def")):
                await call.write(request)
            await call.done_writing()
            async for response in call:
                if response.HasField("done"):
                    sent_ms.append(response.done.stats.sent_ms)
        assert abs(sent_ms[1] - sent_ms[0] - 700) <= 20, "but for the padding of a packet"


async def test_a_pause_can_be_interrupted_and_is_limited() -> None:
    async with served(FakeEngine()) as server:
        call, transcript = server.stub.Speak(), Transcript()
        paced = config(sampling=SEED)
        paced.max_lead_ms = 100
        await call.write(speak_pb2.SpeakRequest(config=paced))
        await call.write(say("a", "x"))
        await call.write(pause(5000, 1, "x"))
        while len(transcript.pcm.get("x", b"")) <= len(spoken("a")):
            await read_until(call, transcript, "audio")
        await call.write(cancel("x"))
        await read_until(call, transcript, "done", "x")
        assert transcript.done["x"].stats.sent_ms < 1000
        await call.write(say("a", "y"))
        await call.write(pause(5001, 1, "y"))
        await read_until(call, transcript, "done", "y")
        assert "5001 is over 5000" in transcript.done["y"].error.message
        await call.done_writing()
        await read_all(call, transcript)
