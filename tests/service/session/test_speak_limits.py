"""`Speak` where it is limited, paced, interrupted or used wrongly."""

import asyncio
from dataclasses import replace

import grpc

from sonorant.engine import EngineState, FinishReason
from sonorant.service.session.session import MAX_OPEN_UTTERANCES
from sonorant.service.utterance.segments import MAX_PENDING_FLUSHES
from sonorant.service.utterance.speech import MAX_HEALS
from sonorant.tts.v1 import speak_pb2, synthesis_pb2
from sonorant.tts.v1.text_to_speech_service_pb2 import GetCapabilitiesRequest, SynthesizeStreamRequest
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import spoken
from tests.service.harness import (
    Transcript,
    cancel,
    config,
    end,
    eventually,
    failure,
    flush,
    read_all,
    read_until,
    say,
    served,
    speak,
    stands_still,
)

COMPLETED = synthesis_pb2.FINISH_REASON_COMPLETED
CANCELLED = synthesis_pb2.FINISH_REASON_CANCELLED
FAILED = synthesis_pb2.FINISH_REASON_FAILED
SEED = {"seed": 7}


async def test_messages_about_no_utterance_are_answered_with_a_warning() -> None:
    async with served(FakeEngine(frame_s=0.1)) as server:  # x is still spoken when it is ended again
        requests = [config(), cancel("*"), cancel("x"), end(), flush(1), say("abc", "x"), end("x"), end("x")]
        transcript = await speak(server.stub, requests)
        assert transcript.warnings == [(name, "NO_ACTIVE_UTTERANCE") for name in ("", "x", "", "")]
        assert transcript.done["x"].reason == COMPLETED


async def test_a_model_slower_than_its_speech_refuses_those_who_ask_for_a_lead_and_warns_others() -> None:
    engine = FakeEngine()
    engine.info = replace(engine.info, real_time_factor=1.5)
    async with served(engine) as server:
        paced = speak_pb2.SpeakConfig(synthesis={"sampling": SEED}, max_lead_ms=500)
        refused = await speak(server.stub, [paced, say("a"), end()])
        assert refused.done["u1"].error.code == grpc.StatusCode.FAILED_PRECONDITION.value[0] and not refused.pcm
        for unasked in (config(sampling=SEED), speak_pb2.SpeakConfig(synthesis={"sampling": SEED})):
            whole = await speak(server.stub, [unasked, say("a"), end()])
            assert whole.pcm["u1"] == spoken("a", 7) and whole.warnings == [("u1", "SLOWER_THAN_SPEECH")]
        stream = server.stub.SynthesizeStream(SynthesizeStreamRequest(text="a", max_lead_ms=500))
        code, message, details = await failure(stream)
        assert (code, details["ErrorInfo"].reason) == (grpc.StatusCode.FAILED_PRECONDITION, "TOO_SLOW"), message
        unheard = SynthesizeStreamRequest(
            text="a", max_lead_ms=500, scheduling={"priority": synthesis_pb2.PRIORITY_BATCH}
        )
        assert [each async for each in server.stub.SynthesizeStream(unheard)][-1].done.reason == COMPLETED


async def test_late_text_for_a_finished_utterance_is_not_spoken_and_warned_about_once() -> None:
    async with served(FakeEngine()) as server:
        call, transcript = server.stub.Speak(), Transcript()
        await call.write(speak_pb2.SpeakRequest(config=config()))
        await call.write(say("a", "x"))
        await call.write(end("x"))
        await read_until(call, transcript, "done", "x")
        await call.write(say("late", "x"))
        await call.write(say("later", "x"))
        await call.done_writing()
        await read_all(call, transcript)
        assert transcript.warnings == [("x", "NO_ACTIVE_UTTERANCE")]
        assert list(transcript.done) == ["x"]


async def test_too_much_text_and_control_characters_fail_one_utterance_only() -> None:
    async with served(FakeEngine(), max_text_chars=10) as server:
        requests = [config(sampling=SEED), say("123456", "x"), say("78901", "x"), say("rest", "x"), end("x")]
        transcript = await speak(server.stub, [*requests, say("a\0b", "y"), end("y"), say("good", "z")])
        assert transcript.done["x"].reason == transcript.done["y"].reason == FAILED
        assert transcript.done["x"].error.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
        assert "limit of 10" in transcript.done["x"].error.message
        assert "U+0000 at position 1" in transcript.done["y"].error.message
        assert transcript.pcm["z"] == spoken("good", 7)


async def test_a_failed_utterance_swallows_its_text_until_its_end() -> None:
    async with served(FakeEngine(), max_text_chars=10) as server:
        requests = [config(sampling=SEED), say("too much text"), say(" and its rest"), end(), say("next")]
        transcript = await speak(server.stub, requests)
        assert [*transcript.done] == ["u1", "u2"]
        assert transcript.pcm == {"u2": spoken("next", 7)}


async def test_max_frames_ends_the_utterance_over_all_its_segments() -> None:
    async with served(FakeEngine()) as server:
        requests = [config(sampling={"seed": 7, "max_frames": 5}), say("ab"), flush(1), say("cd")]
        transcript = await speak(server.stub, requests)
        assert transcript.done["u1"].reason == synthesis_pb2.FINISH_REASON_MAX_AUDIO
        assert transcript.done["u1"].stats.codec_frames == 5
        capped = await speak(server.stub, [config(max_audio_ms=250), say("abcdef")])
        assert capped.done["u1"].stats.codec_frames == 3


async def test_a_runaway_is_stopped_and_told_and_the_session_goes_on() -> None:
    engine = FakeEngine()
    async with served(engine) as server:
        call, transcript = server.stub.Speak(), Transcript()
        paced = config(sampling=SEED)
        paced.max_lead_ms = 400  # what is made beyond that waits, and can be made again
        await call.write(speak_pb2.SpeakRequest(config=paced))
        await call.write(say("a" * 3000, "x"))
        await read_until(call, transcript, "audio")
        for draw in range(1 + MAX_HEALS):  # it goes on with other draws as often as that
            await eventually(lambda: engine.num_opened, 1 + draw)
            stream = next(iter(engine.live.values()))
            await eventually(lambda stream=stream: stream.credit, 0)  # it is far enough ahead for another try
            stream.end(FinishReason.RUNAWAY, "the model was silent for 75 frames")
        await read_until(call, transcript, "done", "x")
        assert transcript.done["x"].reason == synthesis_pb2.FINISH_REASON_RUNAWAY
        assert not transcript.done["x"].HasField("error")
        assert transcript.warnings == [("x", "RUNAWAY")]
        assert "75 frames" in transcript.responses[-2].warning.message
        await call.write(say("b", "y"))
        await call.done_writing()
        await read_all(call, transcript)
        assert transcript.pcm["y"] == spoken("b", 7)


async def test_first_message_must_be_config() -> None:
    async with served(FakeEngine()) as server:
        call = server.stub.Speak()
        await call.write(say("Hello"))
        code, message, details = await failure(call)
        assert code == grpc.StatusCode.FAILED_PRECONDITION
        assert "config" in message
        assert details["ErrorInfo"].reason == "CONFIG_REQUIRED"
        assert details["ErrorInfo"].domain == "sonorant.tts.v1"
        assert details["PreconditionFailure"].violations[0].type == "CONFIG_REQUIRED"
        call = server.stub.Speak()
        await call.done_writing()
        assert (await failure(call))[0] == grpc.StatusCode.FAILED_PRECONDITION


async def test_bad_ids_and_empty_messages_end_the_session() -> None:
    async with served(FakeEngine()) as server:
        for request in (say("a", "x" * 65), say("a", "*"), say("a", "a\nb"), speak_pb2.SpeakRequest()):
            call = server.stub.Speak()
            await call.write(speak_pb2.SpeakRequest(config=config()))
            await call.write(request)
            code, _, details = await failure(call)
            assert code == grpc.StatusCode.INVALID_ARGUMENT
            assert details["BadRequest"].field_violations[0].field in ("utterance_id", "payload")


async def test_pacing_keeps_the_lead() -> None:
    engine, chunk_ms = FakeEngine(), 12 * 80
    async with served(engine) as server:
        call, transcript = server.stub.Speak(), Transcript()
        paced = config(sampling=SEED)
        paced.max_lead_ms = 400
        await call.write(speak_pb2.SpeakRequest(config=paced))
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await call.write(say("a" * 100))
        await call.write(end())
        while len(transcript.pcm.get("u1", b"")) < 48 * 1200:
            await read_until(call, transcript, "audio")
            made_ms, heard_ms = engine.frames_made * 80, (loop.time() - began_s) * 1000
            assert len(transcript.pcm["u1"]) / 48 <= heard_ms + 400
            assert made_ms <= heard_ms + 400 + chunk_ms
        call.cancel()


async def test_what_was_heard_by_report_is_no_lead() -> None:
    """Without the report, what follows would take longer than the test waits."""
    async with served(FakeEngine()) as server:
        call, transcript = server.stub.Speak(), Transcript()
        paced = config(sampling=SEED)
        paced.max_lead_ms = 30_000
        await call.write(speak_pb2.SpeakRequest(config=paced))
        await call.write(say("a" * 600))
        async with asyncio.timeout(60):
            for sent_ms in (29_000, 58_000):
                while len(transcript.pcm.get("u1", b"")) < 48 * sent_ms:
                    await read_until(call, transcript, "audio")
                await call.write(speak_pb2.SpeakRequest(playback={"played_ms": sent_ms}))
        call.cancel()


async def test_a_barge_in_frees_the_lead_for_the_next_utterance() -> None:
    async with served(FakeEngine()) as server:
        call, transcript = server.stub.Speak(), Transcript()
        paced = config(sampling=SEED)
        paced.max_lead_ms = 30_000
        await call.write(speak_pb2.SpeakRequest(config=paced))
        await call.write(say("a" * 187))
        await call.write(end())
        await read_until(call, transcript, "done")  # all 29.9 s are in the client's buffer
        await call.write(cancel("*"))
        await call.write(say("b" * 187))
        await call.write(end())
        await read_until(call, transcript, "done")  # else after 30 s, which is longer than this waits
        await call.done_writing()
        await read_all(call, transcript)
        assert transcript.warnings == [("", "NO_ACTIVE_UTTERANCE")]


async def test_client_cancel_stops_the_engine_and_submits_nothing_more() -> None:
    engine = FakeEngine(frame_s=0.005)
    async with served(engine) as server:
        call, transcript = server.stub.Speak(), Transcript()
        await call.write(speak_pb2.SpeakRequest(config=config()))
        await call.write(say("story " * 10, "x"))
        await call.write(say("another", "y"))
        await read_until(call, transcript, "audio")
        opened = engine._next_id
        call.cancel()

        async def num_sessions() -> int:
            return int((await server.stub.GetCapabilities(GetCapabilitiesRequest())).active_sessions)

        await eventually(num_sessions, 0)
        await eventually(lambda: engine.num_streams, 0, 2)
        assert engine._next_id == opened, "the queued utterance was not begun"


async def test_a_client_that_stops_reading_bounds_what_is_made() -> None:
    engine = FakeEngine()
    async with served(engine) as server:
        options = (("grpc.http2.lookahead_bytes", 65_536), ("grpc.http2.bdp_probe", 0))
        async with grpc.aio.insecure_channel(server.address, options=options) as channel:
            call = type(server.stub)(channel).Speak()
            await call.write(speak_pb2.SpeakRequest(config=config()))
            await call.write(say("a" * 300))
            await call.write(end())
            await eventually(lambda: engine.frames_made > 0, True)
            await stands_still(server, engine)
            assert engine.frames_made < 200, "unpaced, yet bounded by credit and the client's window"
            await call.done_writing()
            transcript = await read_all(call)
            assert transcript.done["u1"].stats.codec_frames == 600


async def test_overload_and_restart_fail_utterances_in_band_and_the_session_recovers() -> None:
    engine = FakeEngine()
    async with served(engine) as server:
        engine.max_streams = 0
        call, transcript = server.stub.Speak(), Transcript()
        await call.write(speak_pb2.SpeakRequest(config=config(sampling=SEED)))
        await call.write(say("a", "crowded"))
        await read_until(call, transcript, "done")
        assert transcript.done["crowded"].error.code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
        engine.max_streams = 2
        await call.write(say("a" * 500, "killed"))
        await read_until(call, transcript, "audio")
        engine.enter(EngineState.RESTARTING)
        await read_until(call, transcript, "done")
        assert transcript.done["killed"].error.code == grpc.StatusCode.UNAVAILABLE.value[0]
        newcomer, told = server.stub.Speak(), Transcript()
        await newcomer.write(speak_pb2.SpeakRequest(config=config(sampling=SEED)))
        await newcomer.write(say("b", "new"))
        await newcomer.done_writing()
        await read_all(newcomer, told)
        assert told.done["new"].error.code == grpc.StatusCode.UNAVAILABLE.value[0]
        await call.write(say("b", "down"))  # of a session that has spoken, so that it may wait
        await call.write(end("down"))
        await read_until(call, transcript, "done", "down")
        assert transcript.done["down"].reason == COMPLETED
        engine.enter(EngineState.READY)
        await call.write(say("c", "back"))
        await call.done_writing()
        await read_all(call, transcript)
        assert transcript.pcm["back"] == spoken("c", 7)


async def test_idle_sessions_end_as_if_half_closed() -> None:
    async with served(FakeEngine()) as server:
        call = server.stub.Speak()
        idle = config(sampling=SEED)
        idle.idle_timeout_ms = 150
        await call.write(speak_pb2.SpeakRequest(config=idle))
        start_s = asyncio.get_running_loop().time()
        await call.write(say("a"))
        transcript = await read_all(call)
        took_s = asyncio.get_running_loop().time() - start_s
        assert transcript.done["u1"].reason == COMPLETED
        assert took_s > 0.15 + 0.16, "silence counts from the end of what plays"


async def test_what_a_client_can_pile_up_is_limited() -> None:
    engine = FakeEngine()
    async with served(engine) as server:
        engine.hold()
        call, transcript = server.stub.Speak(), Transcript()
        await call.write(speak_pb2.SpeakRequest(config=config()))
        for number in range(MAX_OPEN_UTTERANCES + 1):
            await call.write(say("a", f"id{number}"))
        await read_until(call, transcript, "done")
        last = transcript.done[f"id{MAX_OPEN_UTTERANCES}"]
        assert last.error.code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
        for number in range(MAX_PENDING_FLUSHES + 1):
            await call.write(flush(number, "id3"))
        await read_until(call, transcript, "done", "id3")
        assert transcript.done["id3"].error.code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
        engine.release()
        await call.done_writing()
        await read_all(call, transcript)
        assert len(transcript.done) == MAX_OPEN_UTTERANCES + 1
        assert engine.num_streams == 0
