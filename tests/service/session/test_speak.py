"""`Speak` through a real channel, with an engine whose audio is known to the sample."""

import asyncio

import grpc
import pytest

from sonorant.service.session.config import DEFAULT_LEAD_MS
from sonorant.tts.v1 import speak_pb2, synthesis_pb2
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import spoken
from tests.service.harness import (
    Transcript,
    cancel,
    config,
    end,
    eventually,
    flush,
    read_all,
    read_until,
    say,
    served,
    speak,
)

COMPLETED = synthesis_pb2.FINISH_REASON_COMPLETED
CANCELLED = synthesis_pb2.FINISH_REASON_CANCELLED
FAILED = synthesis_pb2.FINISH_REASON_FAILED
SEED = {"seed": 7}


async def test_words_come_back_as_audio_in_order_and_half_close_ends_everything() -> None:
    async with served(FakeEngine()) as server:
        transcript = await speak(server.stub, [config(sampling=SEED), say("Hello, "), say("world.")])
        assert transcript.kinds == [("", "session"), ("u1", "started"), ("u1", "audio"), ("u1", "done")]
        assert transcript.pcm["u1"] == spoken("Hello, world.", 7)
        done = transcript.done["u1"]
        assert done.reason == COMPLETED
        assert done.stats.input_chars == done.stats.spoken_chars == 13
        assert done.stats.codec_frames == 26
        assert done.stats.audio_ms == done.stats.sent_ms == 26 * 80


async def test_audio_comes_while_text_is_still_being_typed() -> None:
    async with served(FakeEngine()) as server:
        call, transcript = server.stub.Speak(), Transcript()
        await call.write(speak_pb2.SpeakRequest(config=config(sampling=SEED)))
        for word in ("One ", "two ", "three."):
            await call.write(say(word))
            await read_until(call, transcript, "audio")
            await asyncio.sleep(0.02)
        await call.done_writing()
        await read_all(call, transcript)
        assert transcript.pcm["u1"] == spoken("One two three.", 7)


async def test_session_started_and_metadata_come_before_any_text() -> None:
    async with served(FakeEngine()) as server:
        call = server.stub.Speak(metadata=(("x-request-id", "mine"),))
        await call.write(speak_pb2.SpeakRequest(config={}))
        metadata = dict(await call.initial_metadata())
        assert (metadata["x-request-id"], metadata["x-model"]) == ("mine", "fake")
        session = (await call.read()).session
        assert session.session_id == metadata["x-session-id"]
        assert session.audio.sample_rate_hz == 24_000
        assert session.audio.frame_duration_ms == 80
        assert session.max_lead_ms == DEFAULT_LEAD_MS
        assert session.idle_timeout_ms == 120_000
        call.cancel()


async def test_the_first_utterance_may_come_with_the_config() -> None:
    """Part of it or all, under an id or none; only the first config has one."""
    async with served(FakeEngine()) as server:

        def opening(**fields: object) -> speak_pb2.SpeakConfig:
            first = config(sampling=SEED)
            first.opening.CopyFrom(speak_pb2.Opening(**fields))
            return first

        whole = await speak(server.stub, [opening(text="At once.", end=True), say("Then")])
        assert whole.pcm == {"u1": spoken("At once.", 7), "u2": spoken("Then", 7)}
        begun = await speak(server.stub, [opening(utterance_id="mine", text="Begun, "), say("ended.")])
        assert begun.pcm == {"mine": spoken("Begun, ended.", 7)}
        call, transcript = server.stub.Speak(), Transcript()
        for _ in range(2):
            await call.write(speak_pb2.SpeakRequest(config=opening(text="Once.", end=True)))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await read_all(call, transcript)
        assert "config.opening" in str(caught.value.details())


async def test_utterances_are_spoken_one_after_the_other_in_the_order_of_creation() -> None:
    async with served(FakeEngine()) as server:
        requests = [
            config(sampling=SEED),
            say("aa", "x"),
            say("bb", "y"),
            end("y"),
            say("AA", "x"),
            end("x"),
            say("cc"),
        ]
        transcript = await speak(server.stub, requests)
        spoken_ids = [utterance_id for utterance_id, kind in transcript.kinds if kind == "audio"]
        assert spoken_ids == ["x", "y", "u1"]
        assert transcript.pcm == {"x": spoken("aaAA", 7), "y": spoken("bb", 7), "u1": spoken("cc", 7)}


async def test_each_utterance_has_a_seed_of_its_own_and_reports_it() -> None:
    async with served(FakeEngine()) as server:
        transcript = await speak(server.stub, [config(), say("a"), end(), say("a"), end()])
        seeds = {r.utterance_id: r.started.seed for r in transcript.responses if r.HasField("started")}
        assert seeds["u1"] != seeds["u2"]
        assert transcript.pcm == {name: spoken("a", seed) for name, seed in seeds.items()}


async def test_a_later_config_holds_for_utterances_not_yet_opened() -> None:
    async with served(FakeEngine()) as server:
        requests = [
            config(voice={"voice_id": "ada"}, sampling=SEED), say("a", "x"), config(voice={"voice_id": "BOB"}),
            say("a", "x"), end("x"), say("b", "y"),
        ]  # fmt: skip
        transcript = await speak(server.stub, requests)
        voices = {r.utterance_id: r.started.voice_id for r in transcript.responses if r.HasField("started")}
        assert voices == {"x": "ada", "y": "bob"}
        assert transcript.pcm["x"] == spoken("aa", 7)


async def test_flush_speaks_everything_and_the_utterance_goes_on() -> None:
    async with served(FakeEngine()) as server:
        call, transcript = server.stub.Speak(), Transcript()
        await call.write(speak_pb2.SpeakRequest(config=config(sampling=SEED)))
        await call.write(say("ab"))
        await call.write(flush(41))
        await read_until(call, transcript, "flush_done")
        assert transcript.pcm["u1"] == spoken("ab", 7)
        assert transcript.responses[-1].flush_done == speak_pb2.FlushDone(flush_id=41, audio_ms=4 * 80)
        await call.write(say("c"))
        await call.write(flush(42))
        await call.write(flush(43))
        await call.done_writing()
        await read_all(call, transcript)
        assert transcript.pcm["u1"] == spoken("ab", 7) + spoken("c", 7)
        audio = [r.audio for r in transcript.responses if r.HasField("audio")]
        assert next(a.start_ms for a in audio if a.flush_id == 41) == 4 * 80
        assert all(a.start_ms < 4 * 80 for a in audio if a.flush_id == 0)
        assert [r.flush_done.flush_id for r in transcript.responses if r.HasField("flush_done")] == [41, 42, 43]
        assert transcript.done["u1"].stats.codec_frames == 6


async def test_cancel_of_the_speaking_utterance_leaves_the_session_alive() -> None:
    engine = FakeEngine(frame_s=0.01)
    async with served(engine) as server:
        call, transcript = server.stub.Speak(), Transcript()
        await call.write(speak_pb2.SpeakRequest(config=config(sampling=SEED)))
        await call.write(say("a long story " * 20))
        await read_until(call, transcript, "audio")
        engine.hold()
        await call.write(cancel(played_ms=60))
        await read_until(call, transcript, "done")  # which waits for no step of the engine
        engine.release()
        assert transcript.done["u1"].reason == CANCELLED
        assert transcript.done["u1"].stats.played_ms == 60
        assert transcript.done["u1"].stats.sent_ms == len(transcript.pcm["u1"]) // 48
        assert engine.num_streams == 0
        await call.write(say("next"))
        await call.done_writing()
        await read_all(call, transcript)
        assert transcript.pcm["u2"] == spoken("next", 7)


async def test_cancel_star_stops_all_and_cancel_without_id_reaches_an_ended_utterance() -> None:
    engine = FakeEngine(frame_s=0.01)
    async with served(engine) as server:
        call, transcript = server.stub.Speak(), Transcript()
        await call.write(speak_pb2.SpeakRequest(config=config()))
        for name in ("a", "b", "c"):
            await call.write(say("story " * 20, name))
        await read_until(call, transcript, "audio")
        await call.write(cancel("*"))
        for _ in range(3):
            await read_until(call, transcript, "done")
        assert {name: done.reason for name, done in transcript.done.items()} == dict.fromkeys("abc", CANCELLED)
        await call.write(say("story " * 20, "d"))
        await call.write(end("d"))
        await read_until(call, transcript, "audio", "d")
        await call.write(cancel())
        await read_until(call, transcript, "done")
        assert transcript.done["d"].reason == CANCELLED
        await call.done_writing()
        await read_all(call, transcript)


async def test_nothing_speakable_is_no_error() -> None:
    async with served(FakeEngine()) as server:
        transcript = await speak(server.stub, [config(), say(" ... "), end(), say("", "empty"), end("empty")])
        assert transcript.warnings == [("u1", "NO_SPEAKABLE_TEXT"), ("empty", "NO_SPEAKABLE_TEXT")]
        assert [(done.reason, done.stats.audio_ms) for done in transcript.done.values()] == [(COMPLETED, 0)] * 2
        assert not transcript.pcm


async def test_leading_punctuation_is_kept_for_the_words_after_it() -> None:
    async with served(FakeEngine()) as server:
        transcript = await speak(server.stub, [config(sampling=SEED), say("... "), say("So")])
        assert transcript.pcm["u1"] == spoken("... So", 7)


async def test_instructions_and_sampling_without_effect_are_told() -> None:
    async with served(FakeEngine(takes_instruct=False)) as server:
        settings = config(instructions="whisper", sampling={"do_sample": False, "temperature": 0.5})
        transcript = await speak(server.stub, [settings, say("a")])
        assert transcript.warnings == [("u1", "SAMPLING_IGNORED"), ("u1", "INSTRUCTIONS_IGNORED")]


async def test_non_streaming_layout_waits_for_the_end() -> None:
    engine = FakeEngine()
    async with served(engine) as server:
        call, transcript = server.stub.Speak(), Transcript()
        await call.write(speak_pb2.SpeakRequest(config=config(sampling=SEED, non_streaming_mode=True)))
        await call.write(say("ab"))
        await read_until(call, transcript, "started")
        await eventually(lambda: [stream.text for stream in engine.live.values()], ["ab"])
        assert not engine.frames_made
        await call.done_writing()
        await read_all(call, transcript)
        assert transcript.pcm["u1"] == spoken("ab", 7)


async def test_frames_are_cut_as_asked_and_the_sum_is_the_same() -> None:
    async with served(FakeEngine()) as server:
        settings = config(sampling=SEED, audio={"frame_duration_ms": 50})
        transcript = await speak(server.stub, [settings, say("abc")])
        sizes = [len(r.audio.data) for r in transcript.responses if r.HasField("audio")]
        assert sizes == [2400] * 9 + [480 * 48 - 9 * 2400]
        assert transcript.pcm["u1"] == spoken("abc", 7)
