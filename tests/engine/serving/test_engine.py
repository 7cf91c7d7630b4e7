"""The whole engine on the built-in voice, with its real worker processes: every stream ends once, whatever happens."""

import asyncio
import dataclasses
import os
import random
import signal
import time
from collections.abc import AsyncIterator

import numpy as np
import pytest
import pytest_asyncio

from sonorant.engine import (
    BUILTIN_VOICE_DIR,
    EngineConfig,
    EngineOverloaded,
    FinishReason,
    InvalidSynthesis,
    PcmChunk,
    StreamEnd,
    UnknownSpeaker,
)
from sonorant.engine.workers.workers import Workers
from tests.engine.one_engine import OwnedEngine, start_engine, work_when_idle
from tests.engine.speech import Heard, assert_same_speech, listen, say, speech, until_idle

pytestmark = pytest.mark.asyncio(loop_scope="module")

CONFIG = EngineConfig.of(model=BUILTIN_VOICE_DIR, num_slots=8, max_queued_streams=8, max_context=512, cpu_threads=1)
SENTENCES = (
    "Hello there.",
    "Good morning, how are you?",
    "One, two, three, four.",
    "It is cold today.",
    "Where is the station?",
    "Thank you very much.",
    "I do not know.",
    "See you tomorrow.",
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator[OwnedEngine]:
    engine = await start_engine(CONFIG)
    yield engine
    await engine.close()


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def nothing_is_left(engine: OwnedEngine) -> AsyncIterator[None]:
    yield
    await asyncio.wait_for(until_idle(engine), 60)
    stats = engine.stats()
    assert (stats.num_streams, stats.backlog) == (0, 0)
    while any(engine.stats().ring_bytes):  # noqa: ASYNC110  the last grants and cancels are still on their way
        await asyncio.sleep(0.01)


async def test_text_becomes_speech(engine: OwnedEngine) -> None:
    heard = await say(engine, "Hello there.")
    assert heard.end.reason is FinishReason.COMPLETED
    assert heard.end.num_frames == heard.num_frames > 5
    assert heard.chunks[0].num_frames == 1
    assert np.abs(heard.samples).max() > 1000


async def test_the_first_chunk_tells_where_the_time_went(engine: OwnedEngine) -> None:
    untold_s = 1.0
    while (
        untold_s > 0.05
    ):  # on a busy machine this process may be late to look; time that no part tells is always there
        began_s = time.monotonic()
        async with engine.open(speech(engine)) as stream:
            stream.push_text("Hello there.")
            stream.end_text()
            first = await asyncio.wait_for(stream.next_event(), 60)
            wall_s = time.monotonic() - began_s
            assert isinstance(first, PcmChunk) and first.budget is not None
            rest = await listen(stream, engine.info.frame_samples, next_frame=1)
        budget = first.budget
        untold_s = wall_s - budget.total_s
        assert untold_s >= 0
        assert min(dataclasses.astuple(budget)) >= 0
        assert budget.step_s > 1e-4 and budget.codec_s > 1e-4
        assert not any(chunk.budget for chunk in rest.chunks)
        assert rest.end.queue_s == pytest.approx(budget.queue_s)


async def test_a_prompt_that_was_there_before_is_not_computed_again(engine: OwnedEngine) -> None:
    params = speech(engine, non_streaming_mode=True, max_frames=20)
    text = " ".join(SENTENCES[:4])
    first = await say(engine, text, params)
    before = await work_when_idle(engine)
    again = await say(engine, text, params)
    talker, talker_before = (await work_when_idle(engine))["talker"], before["talker"]
    num_rows = talker.num_prompt_rows - talker_before.num_prompt_rows
    num_shared_rows = talker.num_shared_rows - talker_before.num_shared_rows
    assert 0 < num_rows <= CONFIG.talker.page_size < num_shared_rows
    assert_same_speech(first.samples, again.samples)


async def test_the_workers_tell_what_they_did(engine: OwnedEngine) -> None:
    before = await work_when_idle(engine)
    heard = await say(engine, "Hello there.")
    work = await work_when_idle(engine)
    talker, code2wav = work["talker"], work["code2wav"]
    assert talker.num_rows - before["talker"].num_rows == heard.num_frames + 1, "the end token is sampled, too"
    assert talker.num_prompt_rows - before["talker"].num_prompt_rows == 9
    assert sum(talker.prompt_steps) - sum(before["talker"].prompt_steps) == 1
    assert code2wav.num_rows - before["code2wav"].num_rows == len(heard.chunks)
    for each in (talker, code2wav):
        assert sum(each.num_steps) == sum(each.step_times)
        assert each.passes.num_eager > 0 == each.passes.num_graphs, "on the CPU"
    assert code2wav.passes.num_padding_rows == 0


async def test_audio_starts_before_the_text_ends_and_pauses_change_nothing(engine: OwnedEngine) -> None:
    words = SENTENCES[1].split()
    async with engine.open(speech(engine)) as stream:
        first = None
        for n, word in enumerate(words):
            stream.push_text(word if n == 0 else " " + word)
            if n == 3:
                first = await asyncio.wait_for(stream.next_event(), 60)
            await asyncio.sleep(0.02)
        assert isinstance(first, PcmChunk)
        stream.grant(first.num_frames)
        stream.end_text()
        rest: list[PcmChunk] = []
        while isinstance(event := await asyncio.wait_for(stream.next_event(), 60), PcmChunk):
            rest.append(event)
            stream.grant(event.num_frames)
    whole = await say(engine, " ".join(words))
    assert_same_speech(np.concatenate([chunk.samples for chunk in (first, *rest)]), whole.samples)
    assert event.reason is whole.end.reason is FinishReason.COMPLETED


@pytest.mark.slow
async def test_streams_together_sound_as_each_alone(engine: OwnedEngine) -> None:
    params = [
        speech(engine, do_sample=True, subtalker_do_sample=True, seed=n, max_frames=20) for n in range(len(SENTENCES))
    ]
    alone = [await say(engine, text, each) for text, each in zip(SENTENCES, params, strict=True)]
    together = await asyncio.gather(*(say(engine, text, each) for text, each in zip(SENTENCES, params, strict=True)))
    for one, other in zip(alone, together, strict=True):
        assert_same_speech(one.samples, other.samples)


async def test_non_streaming_mode(engine: OwnedEngine) -> None:
    heard = await say(engine, "Hello there.", speech(engine, non_streaming_mode=True, max_frames=30))
    assert heard.end.num_frames == heard.num_frames > 0


@pytest.mark.parametrize("non_streaming_mode", [False, True])
async def test_a_text_may_come_together_with_its_end(engine: OwnedEngine, non_streaming_mode: bool) -> None:
    params = speech(engine, non_streaming_mode=non_streaming_mode)
    apart = await say(engine, "One, two, three. ", params)
    async with engine.open(params) as stream:
        stream.push_text("One, two, three. ", is_last=True)
        stream.end_text()  # once more
        assert_same_speech((await listen(stream, engine.info.frame_samples)).samples, apart.samples)
    async with engine.open(params) as stream:
        stream.push_text(" ", is_last=True)
        assert (await listen(stream, engine.info.frame_samples)).num_frames == 0


async def test_a_number_of_frames_means_that_number(engine: OwnedEngine) -> None:
    heard = await say(engine, "Hello.", speech(engine, max_frames=7, ignore_eos=True))
    assert heard.num_frames == 7
    assert heard.end.reason is FinishReason.MAX_FRAMES


@pytest.mark.parametrize("text", ["", "   ", " \n\t"])
async def test_nothing_to_say_ends_without_the_workers(engine: OwnedEngine, text: str) -> None:
    heard = await say(engine, text)
    assert (heard.end.reason, heard.end.num_frames) == (FinishReason.COMPLETED, 0)


async def test_without_credit_no_more_is_made(engine: OwnedEngine) -> None:
    async with engine.open(speech(engine, max_frames=60, ignore_eos=True)) as stream:
        stream.push_text("Hello there.")
        stream.end_text()
        taken = []
        while sum(taken) < CONFIG.talker.credit_frames:
            event = await asyncio.wait_for(stream.next_event(), 60)
            assert isinstance(event, PcmChunk)
            taken.append(event.num_frames)
        assert sum(taken) == CONFIG.talker.credit_frames
        await say(engine, "Hello there.")  # comes by the same way, so what the other stream was sent would be here
        assert stream._events.empty()
        stream.grant(CONFIG.talker.credit_frames)
        rest = 0
        while isinstance(event := await asyncio.wait_for(stream.next_event(), 60), PcmChunk):
            rest += event.num_frames
        assert sum(taken) + rest == 60


async def test_a_stream_may_be_opened_with_less_credit(engine: OwnedEngine) -> None:
    async with engine.open(speech(engine, max_frames=20, ignore_eos=True), credit_frames=3) as stream:
        stream.push_text("Hello there.")
        stream.end_text()
        taken = 0
        while taken < 3:
            event = await asyncio.wait_for(stream.next_event(), 60)
            assert isinstance(event, PcmChunk)
            taken += event.num_frames
        await say(engine, "Hello there.")
        assert stream._events.empty() and not stream.ended
        stream.grant(3)  # less than a lump, and yet it goes on
        while taken < 6:
            event = await asyncio.wait_for(stream.next_event(), 60)
            assert isinstance(event, PcmChunk)
            taken += event.num_frames
        assert taken == 6
        stream.grant(14)
        while not stream.ended:  # noqa: ASYNC110  a plain field
            await asyncio.sleep(0.01)
        events = stream.ready_events()
        assert sum(event.num_frames for event in events[:-1]) == 14
        assert isinstance(events[-1], StreamEnd)


async def test_a_cancelled_stream_ends_once(engine: OwnedEngine) -> None:
    before_text = engine.open(speech(engine))
    before_text.cancel()
    waiting_for_text = engine.open(speech(engine, non_streaming_mode=True))
    waiting_for_text.push_text("Hello")
    waiting_for_text.cancel()
    sent = engine.open(speech(engine))
    sent.push_text("Hello there, my friend.")
    sent.cancel()
    speaking = engine.open(speech(engine, max_frames=400, ignore_eos=True))
    speaking.push_text("Hello there, my friend.")
    speaking.end_text()
    await asyncio.wait_for(speaking.next_event(), 60)
    speaking.cancel()
    for stream in (before_text, waiting_for_text, sent, speaking):
        stream.cancel()
        event = await asyncio.wait_for(stream.next_event(), 60)
        assert isinstance(event, StreamEnd) and event.reason is FinishReason.CANCELLED
        stream.cancel()
        stream.push_text("more")
        stream.end_text()
        stream.grant(100)
    await say(engine, "Hello there.")
    for stream in (before_text, waiting_for_text, sent, speaking):
        assert stream._events.empty()


async def test_an_abandoned_stream_is_cancelled(engine: OwnedEngine) -> None:
    with pytest.raises(ZeroDivisionError):
        async with engine.open(speech(engine, max_frames=400, ignore_eos=True)) as stream:
            stream.push_text("Hello there, my friend.")
            stream.end_text()
            await asyncio.wait_for(stream.next_event(), 60)
            raise ZeroDivisionError
    assert engine.num_streams == 1  # until the workers have answered: see nothing_is_left


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_callers_do_every_stream_ends_once(engine: OwnedEngine, seed: int) -> None:
    rng = random.Random(seed)

    opened = []

    async def misbehave() -> None:
        num_ends = 0
        params = speech(engine, non_streaming_mode=rng.random() < 0.2, max_frames=rng.randint(1, 60), ignore_eos=True)
        async with engine.open(params) as stream:
            opened.append(stream)
            for _ in range(rng.randint(0, 12)):
                match rng.randrange(8):
                    case 0 | 1 | 2:
                        stream.push_text(rng.choice(SENTENCES)) if not stream._text.ended else None
                    case 3:
                        stream.flush_text()
                    case 4:
                        stream.end_text()
                    case 5:
                        stream.grant(rng.randint(1, 30))
                    case 6:
                        await asyncio.sleep(rng.random() * 0.05)
                    case 7 if rng.random() < 0.3:
                        stream.cancel()
            if rng.random() < 0.7:
                stream.end_text()
                stream.grant(60)
            else:
                stream.cancel()
            while not num_ends:
                num_ends += isinstance(await asyncio.wait_for(stream.next_event(), 60), StreamEnd)

    await asyncio.gather(*(misbehave() for _ in range(CONFIG.max_streams)))
    await say(engine, "Hello there.")  # after all that was still on its way
    assert all(stream._events.empty() for stream in opened)


async def test_more_streams_than_slots_wait_and_still_more_are_refused(engine: OwnedEngine) -> None:
    async def hear() -> Heard:
        return await say(engine, "Hello.", speech(engine, max_frames=4, ignore_eos=True))

    tasks = [asyncio.create_task(hear()) for _ in range(CONFIG.max_streams)]
    await asyncio.sleep(0)
    with pytest.raises(EngineOverloaded, match="16 streams"):
        engine.open(speech(engine))
    heard = await asyncio.gather(*tasks)
    assert [each.num_frames for each in heard] == [4] * CONFIG.max_streams


async def test_what_cannot_be_is_refused_before_anything_is_taken(engine: OwnedEngine) -> None:
    with pytest.raises(UnknownSpeaker):
        engine.open(speech(engine).__class__(engine.info.default_sampling, speaker="nobody"))
    with pytest.raises(InvalidSynthesis, match="max_frames is 600"):
        engine.open(speech(engine, max_frames=600))
    with pytest.raises(ValueError, match="credit of 0 frames"):
        engine.open(speech(engine), credit_frames=0)
    assert engine.num_streams == 0


async def test_too_much_text_is_refused(engine: OwnedEngine) -> None:
    async with engine.open(speech(engine)) as stream:
        with pytest.raises(InvalidSynthesis, match="more than 512 tokens"):
            for _ in range(600):
                stream.push_text("seven ")
    async with engine.open(speech(engine)) as stream:
        with pytest.raises(InvalidSynthesis, match="more than 8192 characters"):
            stream.push_text("a" * 1_000_000)
    async with engine.open(speech(engine, non_streaming_mode=True)) as stream:
        with pytest.raises(InvalidSynthesis, match="512 positions"):
            for _ in range(600):
                stream.push_text("seven ")
    async with engine.open(speech(engine, non_streaming_mode=True, max_frames=480)) as stream:
        with pytest.raises(InvalidSynthesis, match="max_frames is 480"):
            stream.push_text("seven " * 100)


async def test_commands_that_do_not_fit_the_ring_wait_and_none_is_lost(engine: OwnedEngine) -> None:
    workers = engine.pair.workers
    assert isinstance(workers, Workers)
    os.kill(workers.children[0].pid, signal.SIGSTOP)  # the talker reads no more
    streams = [engine.open(speech(engine, max_frames=2, ignore_eos=True)) for _ in range(CONFIG.max_streams)]
    for _ in range(400):
        for stream in streams:
            stream.push_text("seven ")
        await asyncio.sleep(0)
    backlog = engine.stats().backlog
    os.kill(workers.children[0].pid, signal.SIGCONT)
    for stream in streams:
        stream.end_text()
    heard = await asyncio.gather(*(listen(stream, engine.info.frame_samples) for stream in streams))
    assert backlog > 0
    assert [each.num_frames for each in heard] == [2] * CONFIG.max_streams


async def test_info(engine: OwnedEngine) -> None:
    assert engine.info.task == "custom_voice"
    assert engine.info.sample_rate_hz == 24000
    assert engine.info.frame_samples == engine.info.sample_rate_hz / engine.info.frame_rate_hz
    assert engine.info.max_streams == CONFIG.max_streams
