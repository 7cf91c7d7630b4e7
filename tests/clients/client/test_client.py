"""The client library against a real server with predictable answers."""

import asyncio
from typing import cast

import grpc
import pytest

from sonorant.client import (
    ALL_UTTERANCES,
    AudioChunk,
    FlushDone,
    InvalidRequest,
    Queued,
    ServerBusy,
    ServerUnavailable,
    SpeechClient,
    SpeechError,
    UtteranceDone,
    UtteranceStarted,
    Warning,
    scheduling,
    synthesis_config,
    voice_mix,
)
from sonorant.tts.v1.audio_pb2 import AUDIO_ENCODING_WAV
from sonorant.tts.v1.synthesis_pb2 import FINISH_REASON_CANCELLED, FINISH_REASON_COMPLETED
from sonorant.tts.v1.voice_pb2 import MIX_METHOD_SPHERICAL
from tests.clients.client._support import found_nobody
from tests.clients.scripted_server import LOUD, RATE_HZ, scripted_server
from tests.service.fake_engine import FakeEngine
from tests.service.harness import served


async def test_text_and_controls_go_out_and_typed_events_come_in() -> None:
    async with scripted_server() as (target, speech), SpeechClient(target) as client:
        async with client.speak(synthesis_config(voice="anna", seed=7), max_lead_ms=500) as session:
            assert session.started.audio.sample_rate_hz == RATE_HZ
            await session.send_text("one ")
            await session.send_text(" two")
            await session.flush(3)
            await session.report_playback(120)
            await session.end()
            await session.send_text("three", utterance_id="mine")
            await session.cancel("mine", played_ms=80)
            await session.finish()
            events = [event async for event in session]
        assert [(event.utterance_id, type(event.payload)) for event in events] == [
            ("u1", UtteranceStarted),
            ("u1", AudioChunk),
            ("u1", AudioChunk),
            ("u1", FlushDone),
            ("u1", Warning),
            ("u1", UtteranceDone),
            ("mine", UtteranceDone),  # what came after the cancel is dropped
        ]
        assert events[3].payload.flush_id == 3
        assert events[5].payload.reason == FINISH_REASON_COMPLETED and events[5].payload.stats.input_chars == 8
        assert events[6].payload.reason == FINISH_REASON_CANCELLED
        first = speech.received[0].config
        assert (first.synthesis.voice.voice_id, first.synthesis.sampling.seed, first.max_lead_ms) == ("anna", 7, 500)
        assert speech.received[-1].utterance_id == "mine" and speech.received[-1].cancel.played_ms == 80


async def test_audio_comes_while_the_text_is_still_open() -> None:
    async with scripted_server() as (target, _), SpeechClient(target) as client, client.speak() as session:
        for word in ("a ", "bc ", "def"):
            await session.send_text(word)
            event = await anext(session)
            if isinstance(event.payload, UtteranceStarted):
                event = await anext(session)
            assert event.payload.data == LOUD * len(word)


async def test_many_tasks_may_write_at_once() -> None:
    async with scripted_server() as (target, speech), SpeechClient(target) as client, client.speak() as session:
        async with asyncio.TaskGroup() as tasks:
            for i in range(100):
                tasks.create_task(session.send_text(f"{i} "))
        await session.finish()
        chunks = [event.payload async for event in session if isinstance(event.payload, AudioChunk)]
    assert sum(chunk.num_samples for chunk in chunks) == sum(len(f"{i} ") for i in range(100))
    assert [request.text for request in speech.received[1:]] == [f"{i} " for i in range(100)]


async def test_a_refusal_keeps_its_reason() -> None:
    """Repeated, because grpc.aio overwrites the status of a call that ends during a write."""
    async with scripted_server() as (target, _), SpeechClient(target) as client:
        for _ in range(100):
            with pytest.raises(ServerBusy) as caught:
                async with client.speak(synthesis_config(voice="busy")) as session:
                    await session.send_text("never sent")
            assert caught.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert (caught.value.reason, caught.value.retry_after_s) == ("NO_PLACE", 2.0)
            assert str(caught.value) == "all places are taken"


async def test_the_first_text_does_not_wait_for_the_servers_answer() -> None:
    async with scripted_server() as (target, speech), SpeechClient(target) as client:
        speech.greets_after_text = True
        async with client.speak(text="at once") as session:
            assert session.started.session_id == "s1"
        assert [request.WhichOneof("payload") for request in speech.received] == ["config", "text"]


async def test_a_whole_utterance_is_sent_with_the_call() -> None:
    async with scripted_server() as (target, speech), SpeechClient(target) as client:
        speech.greets_after_text = True
        async with client.speak(text="at once", end=True) as session:
            events = [await anext(session) for _ in range(3)]
            await session.send_text("and another")
            await session.finish()
            events += [event async for event in session]
        assert [event.utterance_id for event in events] == ["u1"] * 3 + ["u2"] * 3
        assert sum(event.payload.num_samples for event in events if isinstance(event.payload, AudioChunk)) == 18
        told = [request.WhichOneof("payload") for request in speech.received]
        assert told == ["config", "text", "end", "text"]


async def test_a_refusal_keeps_its_reason_whatever_was_sent_with_the_call() -> None:
    async with scripted_server() as (target, _), SpeechClient(target) as client:
        for _ in range(20):
            with pytest.raises(ServerBusy) as caught:
                async with client.speak(synthesis_config(voice="busy"), text="never spoken"):
                    pass
            assert caught.value.reason == "NO_PLACE"


async def test_the_first_text_survives_the_loss_of_its_server() -> None:
    async with scripted_server() as (target, speech), SpeechClient(target) as client:
        speech.resumable, speech.lost_after = True, [0]
        async with client.speak(text="once ") as session:
            await session.send_text("more")
            await session.finish()
            events = [event.payload async for event in session]
    assert sum(event.num_samples for event in events if isinstance(event, AudioChunk)) == len("once more")


async def test_wrong_fields_are_named() -> None:
    async with scripted_server() as (target, _), SpeechClient(target) as client:
        with pytest.raises(InvalidRequest) as caught:
            _ = [payload async for payload in client.stream("text", synthesis_config(temperature=1.5))]
        assert caught.value.fields == {"config.sampling.temperature": "is wrong"}


async def test_without_a_server_the_message_is_clear() -> None:
    async with SpeechClient("127.0.0.1:1") as client:
        for attempt in (client.health(), client.voices(), client.synthesize("text"), client.speak().__aenter__()):
            with pytest.raises(
                ServerUnavailable, match=r"no answer from a Sonorant server at 127\.0\.0\.1:1 .*sonorant-server"
            ):
                await attempt


async def test_a_server_that_goes_away_ends_the_session_with_an_error() -> None:
    async with scripted_server() as (target, _):
        client = SpeechClient(target)
        session = await client.speak().__aenter__()
    with pytest.raises(ServerUnavailable):
        await anext(session)
    with pytest.raises(SpeechError):
        await session.send_text("too late")
    await client.close()


async def test_writing_after_the_end_says_that_the_session_is_over() -> None:
    async with scripted_server() as (target, _), SpeechClient(target) as client, client.speak() as session:
        await session.finish()
        assert [event async for event in session] == []
        with pytest.raises(SpeechError, match="the session is over"):
            await session.send_text("more")
        await session.finish()


@pytest.mark.parametrize("resume", [True, False])
async def test_messages_before_the_session_or_after_its_end_are_errors(resume: bool) -> None:
    """A barge-in, or a piece of text, that nobody hears of must not look as if it had been sent."""
    async with scripted_server() as (target, speech), SpeechClient(target) as client:
        speech.resumable = resume
        session = client.speak(resume=resume)
        for early in (session.send_text("x"), anext(session)):
            with pytest.raises(RuntimeError, match="enter the session first"):
                await early
        async with session:
            await session.send_text("text")
            await session.finish()
            for late in (session.cancel(), session.send_text("more"), session.end(), session.report_playback(5)):
                with pytest.raises(SpeechError, match=r"nothing can be sent after finish\(\)"):
                    await late
            assert isinstance((await anext(session)).payload, UtteranceStarted)
        with pytest.raises(SpeechError, match="the session is over"):
            await session.send_text("more")
        with pytest.raises(SpeechError, match="the call was cancelled"):  # and not the task that asks
            await anext(session)


async def test_a_closed_client_says_so_whether_it_was_used_before_or_not() -> None:
    """One that was not used before opened a connection that nobody closed; the other told of a channel."""
    async with scripted_server() as (target, _):
        used, unused = SpeechClient(target), SpeechClient(target)
        async with used.speak():
            pass
        for client in (used, unused):
            await client.close()
            for late in (client.speak().__aenter__(), client.synthesize("a"), client.voices(), client.capabilities()):
                with pytest.raises(RuntimeError, match="this client is closed; make another one"):
                    await late


async def test_a_session_is_entered_once() -> None:
    """The second time opened a call that nobody ended."""
    async with scripted_server() as (target, _), SpeechClient(target) as client:
        session = client.speak()
        async with session:
            with pytest.raises(RuntimeError, match="a session is entered once"):
                await session.__aenter__()
        with pytest.raises(RuntimeError, match="a session is entered once"):
            await session.__aenter__()


async def test_a_read_that_was_cancelled_ends_the_call_and_not_the_next_reader() -> None:
    async with scripted_server() as (target, _), SpeechClient(target) as client, client.speak() as session:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(session), 0.01)
        with pytest.raises(SpeechError, match="the call was cancelled"):
            await anext(session)


async def test_only_strings_are_text() -> None:
    async with scripted_server() as (target, _), SpeechClient(target) as client, client.speak() as session:
        with pytest.raises(TypeError, match="text is None, not a string"):
            await session.send_text(cast(str, None))  # the last delta of many language models
        await session.send_text("text")
        await session.finish()
        assert [type(event.payload) async for event in session][-1] is UtteranceDone


async def test_leaving_a_session_cancels_it_at_the_server() -> None:
    async with scripted_server() as (target, speech), SpeechClient(target) as client:
        async with client.speak() as session:
            await session.send_text("text")
            await anext(session)
        await asyncio.wait_for(speech.over.wait(), 60)


async def test_cancel_of_all_utterances() -> None:
    async with scripted_server() as (target, speech), SpeechClient(target) as client, client.speak() as session:
        await session.send_text("text")
        await session.cancel(ALL_UTTERANCES)
        await session.finish()
        _ = [event async for event in session]
    assert speech.received[-1].utterance_id == "*" and not speech.received[-1].cancel.HasField("played_ms")


async def test_whole_texts() -> None:
    async with scripted_server() as (target, _), SpeechClient(target) as client:
        clip = await client.synthesize("four")
        assert clip.audio == LOUD * 4 and clip.format.sample_rate_hz == RATE_HZ
        payloads = [payload async for payload in client.stream("four")]
        assert [type(payload) for payload in payloads] == [AudioChunk] * 4 + [UtteranceDone]
        assert (await client.capabilities()).model == "scripted"


async def test_voices_of_all_pages() -> None:
    async with scripted_server() as (target, _), SpeechClient(target) as client:
        assert [voice.voice_id for voice in await client.voices()] == ["v0", "v1", "v2", "v3", "v4"]


async def test_waiting_for_a_server_that_starts_later() -> None:
    async with scripted_server(serving=False) as (target, _), SpeechClient(target) as client:
        assert await client.health() == "NOT_SERVING"
        with pytest.raises(ServerUnavailable, match=r"not serving after 0\.2 s"):
            await client.wait_until_serving(0.2)
    async with SpeechClient(target) as client:
        waiting = asyncio.create_task(client.wait_until_serving(20))
        await found_nobody(client)
        assert not waiting.done()
        async with scripted_server(target):
            await waiting


def test_config_by_keyword() -> None:
    config = synthesis_config(
        language="en", instructions="softly", encoding="wav", top_k=0, do_sample=False, non_streaming_mode=False
    )
    assert config.audio.encoding == AUDIO_ENCODING_WAV
    assert config.sampling.HasField("top_k") and config.sampling.HasField("do_sample")
    assert not config.sampling.HasField("seed")
    assert config.HasField("non_streaming_mode") and not synthesis_config().HasField("non_streaming_mode")
    assert synthesis_config(design="a calm voice").voice.WhichOneof("voice") == "design"
    assert not synthesis_config().HasField("voice")


def test_voices_by_keyword() -> None:
    assert synthesis_config(voice="anna").voice.voice_id == "anna"
    assert synthesis_config(design="deep").voice.design == "deep"
    reference = synthesis_config(reference=b"RIFF", transcript="hello").voice.reference
    assert (reference.audio, reference.transcript) == (b"RIFF", "hello")
    mix = synthesis_config(mix=voice_mix({"anna": 0.25, "ben": 0.75}, spherical=True)).voice.mix
    assert [(part.voice_id, part.weight) for part in mix.voices] == [("anna", 0.25), ("ben", 0.75)]
    assert mix.method == MIX_METHOD_SPHERICAL
    assert not synthesis_config().HasField("voice")
    for both in ({"voice": "anna", "design": "deep"}, {"transcript": "hello"}):
        with pytest.raises(ValueError, match=r"exclude|give the reference"):
            synthesis_config(**both)


def test_misspelled_settings_are_errors() -> None:
    with pytest.raises(InvalidRequest, match="no 'tempreture'; did you mean 'temperature'"):
        synthesis_config(tempreture=0.5)
    with pytest.raises(InvalidRequest, match="encoding: there is no 'mp3'; use one of pcm_s16le, wav"):
        synthesis_config(encoding="mp3")


async def test_utterances_may_wait_for_a_full_server() -> None:
    engine = FakeEngine(frame_s=0.02, max_streams=1)
    patient = scheduling(max_wait_ms=20_000)
    async with served(engine) as server, SpeechClient(server.address) as client:
        async with client.speak(max_lead_ms=0, text="a" * 1000) as taking:
            while not isinstance((await anext(taking)).payload, AudioChunk):
                pass
            with pytest.raises(ServerBusy, match="in use"):
                await client.synthesize("b")
            clip = asyncio.create_task(client.synthesize("b", scheduling=patient))
            stream = client.stream("b", scheduling=patient)
            queued = await anext(stream)
            assert isinstance(queued, Queued) and queued.expected_wait_ms > 0
        async with asyncio.timeout(60):
            assert (await clip).reason == FINISH_REASON_COMPLETED
            payloads = [payload async for payload in stream]
        assert isinstance(payloads[0], UtteranceStarted) and isinstance(payloads[-1], UtteranceDone)
        await client.synthesize("b", scheduling=scheduling(batch=True))
        assert engine.background == [False, False, False, True]
