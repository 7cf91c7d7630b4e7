"""Sessions that lose their server, against a real one that breaks off as if it had died."""

import pytest

from sonorant.client import (
    AudioChunk,
    Resumed,
    ServerUnavailable,
    SpeechClient,
    SpeechError,
    UtteranceDone,
    UtteranceStarted,
)
from sonorant.tts.v1.synthesis_pb2 import FINISH_REASON_CANCELLED, FINISH_REASON_COMPLETED
from tests.clients.scripted_server import scripted_server


async def test_the_caller_hears_every_sample_once_and_is_told_of_the_loss() -> None:
    async with scripted_server() as (target, speech), SpeechClient(target) as client:
        speech.resumable, speech.lost_after = True, [2, 1]
        async with client.speak() as session:
            for word in ("one ", "two ", "three ", "four"):
                await session.send_text(word)
            await session.finish()
            events = [event async for event in session]
    chunks = [event.payload for event in events if isinstance(event.payload, AudioChunk)]
    assert sum(chunk.num_samples for chunk in chunks) == len("one two three four")
    assert sum(isinstance(event.payload, UtteranceStarted) for event in events) == 1
    resumed = [event.payload for event in events if isinstance(event.payload, Resumed)]
    assert [each.session_id for each in resumed] == ["s2"] and 0 <= resumed[0].gap_s < 5
    assert events[-1].payload.reason == FINISH_REASON_COMPLETED
    told = [request.resume for request in speech.received if request.HasField("resume")]
    assert [(each.received_samples, each.checkpoint, each.replay.language) for each in told] == [(8, "c", "english")]


async def test_what_is_written_while_nobody_reads_reaches_the_next_server() -> None:
    async with scripted_server() as (target, speech), SpeechClient(target) as client:
        speech.resumable, speech.lost_after = True, [0]
        async with client.speak() as session:
            await session.send_text("lost ")
            assert isinstance((await anext(session)).payload, UtteranceStarted)
            speech.over.clear()
            await session.send_text("kept")
            await session.finish()
            events = [event.payload async for event in session]
    assert [type(event) for event in events] == [Resumed, AudioChunk, UtteranceDone]
    assert events[1].num_samples == len("lost kept")


async def test_a_cancelled_utterance_is_done_with_its_server() -> None:
    async with scripted_server() as (target, speech), SpeechClient(target) as client:
        speech.resumable, speech.lost_after = True, [1]
        async with client.speak() as session:
            await session.send_text("one ")
            assert isinstance((await anext(session)).payload, UtteranceStarted)
            assert isinstance((await anext(session)).payload, AudioChunk)
            await session.send_text("two ")
            await speech.over.wait()
            await session.cancel()
            await session.finish()
            events = [event.payload async for event in session]
    assert [event.reason for event in events if isinstance(event, UtteranceDone)] == [FINISH_REASON_CANCELLED]


@pytest.mark.parametrize("resume", [True, False])
async def test_without_it_on_both_sides_a_loss_is_an_error(resume: bool) -> None:
    async with scripted_server() as (target, speech), SpeechClient(target) as client:
        speech.lost_after = [0]
        async with client.speak(resume=resume) as session:
            await session.send_text("one ")
            with pytest.raises(SpeechError):
                async for _ in session:
                    pass


async def test_a_server_that_is_gone_for_good_is_an_error_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sonorant.client.session.RECONNECT_S", 0.3)
    async with scripted_server() as (target, speech):
        speech.resumable = True
        client = SpeechClient(target)
        session = await client.speak().__aenter__()
        await session.send_text("one ")
    with pytest.raises(ServerUnavailable):
        async for _ in session:
            pass
    await client.close()


async def test_the_stream_of_a_whole_text_goes_on_in_a_session() -> None:
    async with scripted_server() as (target, speech), SpeechClient(target) as client:
        speech.resumable, speech.clips_lost_after = True, 3
        payloads = [payload async for payload in client.stream("one two")]
    chunks = [payload for payload in payloads if isinstance(payload, AudioChunk)]
    assert sum(chunk.num_samples for chunk in chunks) == len("one two")
    assert sum(isinstance(payload, UtteranceStarted) for payload in payloads) == 1
    assert sum(isinstance(payload, Resumed) for payload in payloads) == 1
    assert isinstance(payloads[-1], UtteranceDone)


async def test_a_clip_whose_server_was_lost_is_asked_for_again() -> None:
    async with scripted_server() as (target, speech), SpeechClient(target) as client:
        speech.clips_lost_after = 0
        assert len((await client.synthesize("one")).audio) == 2 * len("one")
