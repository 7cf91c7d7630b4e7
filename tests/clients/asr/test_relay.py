"""Hypotheses through the real service: what is said when, and what of it is corrected."""

import asyncio
from collections.abc import AsyncIterator

from sonorant.asr.commit import ReleasedWord
from sonorant.asr.draft import Draft
from sonorant.asr.hypotheses import Hypothesis, HypothesisPart
from sonorant.asr.relay import RevisingRelay
from sonorant.client import AudioChunk, FlushDone, Revised, SpeechClient, synthesis_config
from sonorant.client.listening.playback_clock import PlaybackClock
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import spoken
from tests.service.harness import served


async def test_a_phrase_is_corrected_while_unheard_and_the_next_waits_for_the_listener() -> None:
    engine, now_s = FakeEngine(), 0.0
    coming: asyncio.Queue[Hypothesis | None] = asyncio.Queue()
    released: list[ReleasedWord] = []
    events: asyncio.Queue[type] = asyncio.Queue()
    num_sent, audio = 0, b""

    async def hypotheses() -> AsyncIterator[Hypothesis]:
        while (hypothesis := await coming.get()) is not None:
            yield hypothesis
            coming.task_done()  # by now it has been dealt with

    def hear(text: str, *, final: bool = False) -> None:
        coming.put_nowait(Hypothesis((HypothesisPart(text),), 0.0, final))

    def on_sent() -> None:
        nonlocal num_sent
        num_sent += 1

    async def comes(kind: type) -> None:
        while await events.get() is not kind:
            pass

    async with (
        served(engine) as server,
        SpeechClient(server.address) as client,
        client.speak(synthesis_config(seed=7), max_lead_ms=0) as session,
        asyncio.TaskGroup() as tasks,
    ):
        relay = RevisingRelay(session, Draft(1), released.extend, on_sent, PlaybackClock(lambda: now_s))

        async def read() -> None:
            nonlocal audio
            async for event in session:
                if isinstance(event.payload, AudioChunk):
                    audio += event.payload.data
                relay.take(event)
                events.put_nowait(type(event.payload))

        tasks.create_task(read())
        sending = tasks.create_task(relay.send(hypotheses()))
        engine.hold()
        hear("good moaning to")
        hear("good morning to")
        await comes(Revised)
        engine.release()
        await comes(FlushDone)
        assert num_sent == 2
        hear("good morning to you all there")  # while the listener hears the first words
        hear("good morning to all of you")
        await coming.join()
        assert num_sent == 2
        now_s = 60.0
        hear("good morning to all of you there")
        await comes(FlushDone)
        assert num_sent == 3
        now_s = 120.0
        hear("good morning to all of you", final=True)
        coming.put_nowait(None)
        await sending
    assert audio == spoken("good morning ", 7) + spoken("to all of you ", 7)
    assert "".join(word.text for word in released) == "good morning to all of you"
