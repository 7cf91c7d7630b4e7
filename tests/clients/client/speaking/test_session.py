"""Sessions that lose their server, against a real one that breaks off as if it had died."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from sonorant.client import (
    AudioChunk,
    ConnectionLost,
    Resumed,
    Retry,
    ServerUnavailable,
    SpeechClient,
    SpeechError,
    UtteranceDone,
    UtteranceStarted,
)
from sonorant.client.transport.trace import Trace
from sonorant.tts.v1.speak_pb2 import SpeakResponse
from sonorant.tts.v1.synthesis_pb2 import FINISH_REASON_CANCELLED, FINISH_REASON_COMPLETED
from tests.clients.scripted_server import scripted_server
from tests.service.harness import eventually


async def test_after_a_loss_the_caller_gets_every_sample_once_and_a_resumed_event() -> None:
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
    resumes = [request.resume for request in speech.received if request.HasField("resume")]
    assert [(each.received_samples, each.checkpoint, each.replay.language) for each in resumes] == [(8, "c", "english")]


async def test_text_that_is_written_while_nobody_reads_reaches_the_next_server() -> None:
    async with scripted_server() as (target, speech), SpeechClient(target) as client:
        speech.resumable, speech.lost_after = True, [0]
        async with client.speak() as session:
            await session.send_text("lost ")
            assert isinstance((await anext(session)).payload, UtteranceStarted)
            speech.over.clear()
            await session.send_text("kept")
            await session.finish()
            events = [event.payload async for event in session]
    assert [type(event) for event in events] == [ConnectionLost, Resumed, AudioChunk, UtteranceDone]
    assert events[2].num_samples == len("lost kept")


async def test_a_session_that_looks_for_a_server_says_that_its_client_was_closed() -> None:
    async with AsyncExitStack() as server:
        target, speech = await server.enter_async_context(scripted_server())
        speech.resumable = True
        client = SpeechClient(target)
        async with client.speak() as session:
            await session.send_text("one ")
            assert isinstance((await anext(session)).payload, UtteranceStarted)
            assert isinstance((await anext(session)).payload, AudioChunk)
            await server.aclose()
            assert isinstance((await anext(session)).payload, ConnectionLost)
            reading = asyncio.create_task(session.read())
            await client.close()
            with pytest.raises(SpeechError, match="its client closed"):
                await reading


async def test_a_cancelled_utterance_is_not_resumed() -> None:
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
async def test_a_loss_is_an_error_unless_client_and_server_can_resume(resume: bool) -> None:
    async with scripted_server() as (target, speech), SpeechClient(target) as client:
        speech.lost_after = [0]
        async with client.speak(resume=resume) as session:
            await session.send_text("one ")
            with pytest.raises(SpeechError):
                async for _ in session:
                    pass


async def test_a_server_that_does_not_come_back_is_an_error_in_the_end() -> None:
    async with scripted_server() as (target, speech):
        speech.resumable = True
        client = SpeechClient(target, retry=Retry(for_s=0.3))
        session = await client.speak().__aenter__()
        await session.send_text("one ")
    with pytest.raises(ServerUnavailable):
        async for _ in session:
            pass
    await client.close()


async def test_the_stream_of_a_whole_text_is_resumed_in_a_session() -> None:
    async with scripted_server() as (target, speech), SpeechClient(target) as client:
        speech.resumable, speech.clips_lost_after = True, 3
        payloads = [payload async for payload in client.stream("one two")]
    chunks = [payload for payload in payloads if isinstance(payload, AudioChunk)]
    assert sum(chunk.num_samples for chunk in chunks) == len("one two")
    assert sum(isinstance(payload, UtteranceStarted) for payload in payloads) == 1
    assert sum(isinstance(payload, Resumed) for payload in payloads) == 1
    assert isinstance(payloads[-1], UtteranceDone)


async def test_a_clip_whose_server_was_lost_is_requested_again() -> None:
    async with scripted_server() as (target, speech), SpeechClient(target) as client:
        speech.clips_lost_after = 0
        assert len((await client.synthesize("one")).audio) == 2 * len("one")


@pytest.fixture
def short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sonorant.client.transport.silence_limits.GRACE_S", 0.1)
    monkeypatch.setattr("sonorant.client.transport.silence_limits.MIN_ANSWER_S", 0.05)


async def speak_to_the_end(client: SpeechClient, *words: str) -> list[object]:
    async with client.speak(max_lead_ms=100) as session:
        for word in words:
            await session.send_text(word)
        await session.finish()
        return [event.payload async for event in session]


def heard(payloads: list[object]) -> tuple[int, int]:
    """Samples, and how often the session was resumed."""
    samples = sum(payload.num_samples for payload in payloads if isinstance(payload, AudioChunk))
    return samples, sum(isinstance(payload, Resumed) for payload in payloads)


@pytest.mark.usefixtures("short_limits")
async def test_a_session_moves_from_a_silent_server_past_another_silent_one_to_a_third() -> None:
    async with scripted_server() as (target, speech), SpeechClient(target) as client:
        speech.resumable, speech.max_silence_ms, speech.frozen_after = True, 20, {1: 1, 2: -1}
        payloads = await speak_to_the_end(client, "one ", "two ", "three")
        samples, resumed = heard(payloads)
        assert samples == len("one two three") and resumed >= 1
        assert "s2" not in [payload.session_id for payload in payloads if isinstance(payload, Resumed)]
        assert isinstance(payloads[-1], UtteranceDone)
        assert all(request.config.max_silence_ms == 150 for request in speech.received if request.HasField("config"))


@pytest.mark.usefixtures("short_limits")
async def test_a_silent_server_that_answers_first_keeps_its_session_and_few_other_calls_are_made() -> None:
    async with scripted_server() as (target, speech), SpeechClient(target) as client:
        speech.resumable, speech.max_silence_ms = True, 20
        speech.frozen_after = {1: 1, **dict.fromkeys(range(2, 100), -1)}
        speaking = asyncio.create_task(speak_to_the_end(client, "one ", "two "))
        await eventually(lambda: speech.num_sessions, 5)
        await asyncio.sleep(0.15)
        speech.frozen_after = {}
        speech.thaw.set()
        payloads = await speaking
        samples, resumed = heard(payloads)
        assert samples == len("one two ") and resumed <= 1  # the session stays with whichever speaks first
        assert speech.num_sessions == 5


@pytest.mark.usefixtures("short_limits")
async def test_a_session_moves_although_a_write_waits_for_the_frozen_server() -> None:
    words = ["word " * 50_000] * 20  # over what the connection buffers
    async with scripted_server() as (target, speech), SpeechClient(target) as client:
        speech.resumable, speech.max_silence_ms, speech.frozen_after = True, 20, {1: 0}
        async with client.speak(max_lead_ms=100) as session:

            async def write() -> None:
                for word in words:
                    await session.send_text(word)
                    await session.flush()  # or they would be sent again as one
                await session.finish()

            writing = asyncio.create_task(write())
            payloads = [event.payload async for event in session]
            await writing
    samples, resumed = heard(payloads)
    assert samples == sum(map(len, words)) and resumed >= 1


@pytest.mark.usefixtures("short_limits")
async def test_the_stream_of_a_whole_text_moves_from_a_silent_server() -> None:
    async with scripted_server() as (target, speech), SpeechClient(target) as client:
        speech.resumable, speech.max_silence_ms, speech.clips_frozen_after = True, 20, 3
        payloads = [payload async for payload in client.stream("one two", max_lead_ms=100)]
        assert heard(payloads) == (len("one two"), 1)
        assert isinstance(payloads[-1], UtteranceDone) and speech.num_sessions >= 1


async def test_silence_between_utterances_is_not_an_alarm() -> None:
    async with scripted_server() as (target, speech), SpeechClient(target) as client:
        speech.resumable, speech.max_silence_ms = True, 1
        async with client.speak(max_lead_ms=100) as session:
            await session.send_text("one")
            await session.end()
            while not isinstance((await anext(session)).payload, UtteranceDone):
                pass
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.4):
                    await anext(session)
        assert speech.num_sessions == 1


async def test_a_new_session_that_is_not_answered_makes_one_more_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sonorant.client.speaking.session.FIRST_ANSWER_S", 0.03)
    async with scripted_server() as (target, speech), SpeechClient(target) as client:
        speech.resumable, speech.frozen_after = True, {1: -1}
        assert heard(await speak_to_the_end(client, "one")) == (3, 0)
        assert speech.num_sessions == 2


@pytest.mark.parametrize("field", ["codes", "packed"])
def test_a_trace_shows_how_many_bytes_of_codes_came(field: str) -> None:
    lines: list[str] = []
    Trace(lines.append).received(SpeakResponse(audio={"data": bytes(8), "codes": [{field: bytes(22)}]}))
    assert lines[0].endswith("+ 8 bytes + 22 of codes")
