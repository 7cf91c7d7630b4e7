"""Stored codes into sound by real workers: the samples that were spoken, whatever ends those workers."""

import asyncio
import dataclasses
import os
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from sonorant.engine import (
    BUILTIN_VOICE_DIR,
    CodecDiffers,
    EngineConfig,
    EngineOverloaded,
    EngineState,
    FinishReason,
    InvalidSynthesis,
    PcmChunk,
    StoredStream,
    SynthesisParams,
    start_here,
)
from sonorant.engine.types import Int16Array
from tests.engine.one_engine import OwnedEngine, start_engine
from tests.engine.speech import Heard, say, speech, until_idle
from tests.tiny_checkpoint import QUICK, write_tiny_checkpoint

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLACES = 3
TALKER, CODE2WAV = 0, 1


def config(model: Path) -> EngineConfig:
    return EngineConfig.of(
        model, num_slots=2, max_queued_streams=2, max_context=256, cpu_threads=1, stored_streams=PLACES
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator[OwnedEngine]:
    engine = await start_engine(config(BUILTIN_VOICE_DIR))
    yield engine
    await engine.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def spoken(engine: OwnedEngine) -> list[Heard]:
    """Speech of three lengths: less than a chunk, several chunks, and more than the credit."""
    return [
        await say(engine, "One, two, three, and four of them.", speech(engine, seed=length, max_frames=length, **LONG))
        for length in (1, 30, 70)
    ]


LONG = {"ignore_eos": True, "min_frames": 1}


def codes_of(heard: Heard) -> Int16Array:
    return np.concatenate([chunk.codes for chunk in heard.chunks])


async def listen(stream: StoredStream, segments: Sequence[Heard | Int16Array]) -> None:
    """Take all audio, granting what was taken, and check that it is what was spoken."""
    chunks: list[PcmChunk] = []
    while isinstance(event := await asyncio.wait_for(stream.next_event(), 60), PcmChunk):
        chunks.append(event)
        stream.grant(event.num_frames)
    assert event.reason is FinishReason.COMPLETED
    whole = np.concatenate([each.samples if isinstance(each, Heard) else each for each in segments])
    heard = np.concatenate([chunk.samples for chunk in chunks])
    assert len(heard) == len(whole)
    assert np.abs(heard.astype(np.int32) - whole).max() <= 2
    assert sum(chunk.first_frame == 0 for chunk in chunks) == len(segments)


async def test_what_was_spoken_is_heard_again_segment_by_segment(engine: OwnedEngine, spoken: list[Heard]) -> None:
    async with engine.open_stored([codes_of(heard) for heard in spoken]) as stream:
        await listen(stream, spoken)
    assert engine.num_streams == 0 and engine.stats().work["talker"].num_prompt_rows > 0


async def test_segments_of_every_length(engine: OwnedEngine, spoken: list[Heard]) -> None:
    longest = spoken[-1]
    codes = codes_of(longest)
    frame_samples = len(longest.samples) // len(codes)
    async with engine.open_stored([codes[:length] for length in range(1, 41)]) as stream:
        await listen(stream, [longest.samples[: length * frame_samples] for length in range(1, 41)])


@pytest.mark.slow
async def test_a_clones_reference_is_decoded_before_each_segment(tmp_path: Path) -> None:
    engine = await start_engine(config(write_tiny_checkpoint(tmp_path, task="base", **QUICK)))
    rng = np.random.default_rng(0)
    reference = rng.integers(0, 64, (20, engine.info.num_codebooks), np.int16)
    params = SynthesisParams(
        dataclasses.replace(engine.info.default_sampling, seed=1, max_frames=30, ignore_eos=True),
        x_vector=rng.standard_normal(engine.info.hidden_size).astype(np.float32),
        reference_codes=reference,
        reference_text="Fine!",
    )
    try:
        heard = await say(engine, "Hello there.", params)
        async with engine.open_stored([codes_of(heard)] * 2, reference) as stream:
            await listen(stream, [heard, heard])
        async with engine.open_stored([codes_of(heard)]) as stream:
            with pytest.raises(AssertionError):  # its beginning is another without
                await listen(stream, [heard])
    finally:
        await engine.close()


@pytest.mark.slow  # workers load anew
@pytest.mark.parametrize(("worker", "credit_frames"), [(TALKER, 1), (CODE2WAV, 48)])
async def test_it_outlives_workers(engine: OwnedEngine, spoken: list[Heard], worker: int, credit_frames: int) -> None:
    async with engine.open_stored([codes_of(heard) for heard in spoken], None, credit_frames) as stream:
        first = await asyncio.wait_for(stream.next_event(), 60)
        assert isinstance(first, PcmChunk) and first.first_frame == 0
        assert engine.pair.workers is not None
        os.kill(engine.pair.workers.children[worker].pid, signal.SIGKILL)
        stream.grant(first.num_frames)
        chunks = [first]
        while isinstance(event := await asyncio.wait_for(stream.next_event(), 60), PcmChunk):
            chunks.append(event)
            stream.grant(event.num_frames)
    assert event.reason is FinishReason.COMPLETED
    whole = np.concatenate([each.samples for each in spoken]).astype(np.int32)
    assert np.abs(np.concatenate([chunk.samples for chunk in chunks]) - whole).max() <= 2


async def test_places_are_limited_apart_from_speech_and_given_back(engine: OwnedEngine, spoken: list[Heard]) -> None:
    codes = codes_of(spoken[2])
    streams = [engine.open_stored([codes], None, 1) for _ in range(PLACES)]
    with pytest.raises(EngineOverloaded, match="3 places for stored codes"):
        engine.open_stored([codes])
    heard = await say(
        engine, "Hello.", speech(engine, seed=1, max_frames=10, **LONG)
    )  # nobody who speaks waits for them
    assert heard.num_frames == 10
    for stream in streams:
        stream.cancel()
        assert (await asyncio.wait_for(stream.next_event(), 60)).num_frames >= 0
    await until_idle(engine)
    async with engine.open_stored([codes]) as stream:
        await listen(stream, [spoken[2]])


async def test_without_credit_nothing_is_decoded(engine: OwnedEngine, spoken: list[Heard]) -> None:
    async with engine.open_stored([codes_of(spoken[2])], None, 5) as stream:
        num_frames = 0
        while num_frames < 5:
            event = await asyncio.wait_for(stream.next_event(), 60)
            assert isinstance(event, PcmChunk)
            num_frames += event.num_frames
        await say(engine, "Hello.", speech(engine, seed=1, max_frames=10, **LONG))  # what is sent behind it comes
        assert num_frames == 5 and stream._events.empty()
    await until_idle(engine)


async def test_codes_that_no_stream_made_are_refused(engine: OwnedEngine, spoken: list[Heard]) -> None:
    codes = codes_of(spoken[1])
    for wrong, told in (
        ([codes[:, :-1]], "needs int16"),
        ([codes + np.int16(30_000)], "a code is 0 to"),
        ([codes[:0]], "no frames"),
        ([], "no frames"),
        ([np.concatenate([codes] * 9)], "max_context allows"),
    ):
        with pytest.raises(InvalidSynthesis, match=told):
            engine.open_stored(wrong)
    with pytest.raises(InvalidSynthesis, match="max_context allows"):
        engine.open_stored([codes], np.concatenate([codes] * 8))
    assert engine.num_streams == 0


@pytest.mark.slow
async def test_the_pair_whose_codec_it_is(tmp_path: Path) -> None:
    """Each of two checkpoints decodes its own codes, and neither those of a third one."""
    models = [BUILTIN_VOICE_DIR, write_tiny_checkpoint(tmp_path / "tiny", **QUICK)]
    states: asyncio.Queue[object] = asyncio.Queue()
    pool = await start_here([config(model) for model in models], states.put_nowait)
    try:
        while pool.state is not EngineState.READY:
            await asyncio.wait_for(states.get(), 60)
        for info in pool.infos:
            codes = np.ones((3, info.num_codebooks), np.int16)
            async with pool.open_stored(info.codec, [codes]) as stream:
                event = await asyncio.wait_for(stream.next_event(), 60)
                assert isinstance(event, PcmChunk) and len(event.samples) == info.frame_samples
        with pytest.raises(CodecDiffers, match="made with codec 0123456789abcdef"):
            pool.open_stored("0123456789abcdef", [codes])
    finally:
        await pool.close()
