"""Streams outlive workers: whatever ends those, the audio is that of an undisturbed run, each frame of it once."""

import asyncio
import dataclasses
import os
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from sonorant.engine import BUILTIN_VOICE_DIR, Engine, EngineConfig, FinishReason, PcmChunk, SynthesisParams
from sonorant.engine.types import Int16Array
from tests.engine.one_engine import OwnedEngine, start_engine
from tests.engine.speech import Heard, listen
from tests.tiny_checkpoint import QUICK, write_tiny_checkpoint

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXTS = ("The quick brown fox jumps over the lazy dog.", "One, two, three, and four of them.")
BEFORE_FRAMES = 4  # of each stream, before the workers are ended
TALKER, CODE2WAV = (0,), (1,)


@dataclasses.dataclass(frozen=True)
class Session:
    text: str
    params: SynthesisParams


def config(model: Path) -> EngineConfig:
    return EngineConfig.of(
        model, num_slots=8, max_queued_streams=8, max_context=512, cpu_threads=1, talker_device="cpu", hang_timeout_s=2
    )


def sessions(engine: OwnedEngine) -> list[Session]:
    """Both prompt layouts, greedy and sampled; for a Base checkpoint clones with and without a transcript."""
    made = []
    rng = np.random.default_rng(0)
    for n in range(8):
        sampling = dataclasses.replace(
            engine.info.default_sampling,
            do_sample=n % 2 == 1,
            subtalker_do_sample=n % 2 == 1,
            seed=n,
            min_frames=20,
            max_frames=40,
        )
        voice: dict[str, Any] = {"speaker": engine.info.speakers[0]} if engine.info.speakers else {}
        if engine.info.task == "base":
            voice["x_vector"] = rng.standard_normal(engine.info.hidden_size).astype(np.float32)
            if n >= 4:
                voice["reference_codes"] = rng.integers(0, 64, (12 + n, engine.info.num_codebooks), np.int16)
                voice["reference_text"] = "Fine!"
        made.append(Session(TEXTS[n % 2], SynthesisParams(sampling, non_streaming_mode=n % 4 >= 2, **voice)))
    return made


async def undisturbed(engine: OwnedEngine, session: Session) -> Heard:
    async with engine.open(session.params) as stream:
        stream.push_text(session.text)
        stream.end_text()
        return await listen(stream, engine.info.frame_samples)


async def disturbed(engine: OwnedEngine, session: Session, begun: asyncio.Barrier, ended: asyncio.Event) -> Heard:
    """Most of the text, up to the middle of a word, comes before the workers die, and the rest of it after."""
    half = len(session.text) - 8
    is_whole = session.params.non_streaming_mode or session.params.reference_codes is not None  # needs it to begin
    chunks: list[PcmChunk] = []
    async with engine.open(session.params, credit_frames=BEFORE_FRAMES) as stream:
        stream.push_text(session.text[:half])
        if is_whole:
            stream.push_text(session.text[half:])
            stream.end_text()
        num_before = 0
        while num_before < BEFORE_FRAMES:
            event = await asyncio.wait_for(stream.next_event(), 60)
            assert isinstance(event, PcmChunk) and event.first_frame == num_before
            chunks.append(event)
            num_before += event.num_frames
        await begun.wait()
        await ended.wait()
        if not is_whole:
            stream.push_text(session.text[half:])
            stream.end_text()
        stream.grant(BEFORE_FRAMES)
        rest = await listen(stream, engine.info.frame_samples, next_frame=num_before)
    return Heard(rest.end, [*chunks, *rest.chunks])


async def check(engine: OwnedEngine, expected: Sequence[Heard], workers: Sequence[int], number: signal.Signals) -> None:
    begun, ended = asyncio.Barrier(9), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(disturbed(engine, session, begun, ended)) for session in sessions(engine)]
        await begun.wait()
        running = engine.pair.workers
        assert running is not None
        for worker in workers:
            os.kill(running.children[worker].pid, number)
        ended.set()
    for heard, whole in zip([task.result() for task in tasks], expected, strict=True):
        assert (heard.end.reason, heard.num_frames) == (whole.end.reason, whole.num_frames)
        assert heard.end.num_frames == whole.end.num_frames
        np.testing.assert_array_equal(codes_of(heard), codes_of(whole))
        assert np.abs(heard.samples.astype(np.int32) - whole.samples).max() <= 2
    assert engine.num_streams == 0


def codes_of(heard: Heard) -> Int16Array:
    return np.concatenate([chunk.codes for chunk in heard.chunks])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def voice() -> AsyncIterator[tuple[Engine, list[Heard]]]:
    engine = await start_engine(config(BUILTIN_VOICE_DIR))
    yield engine, [await undisturbed(engine, session) for session in sessions(engine)]
    await engine.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def clones(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Engine, list[Heard]]]:
    engine = await start_engine(config(write_tiny_checkpoint(tmp_path_factory.mktemp("tiny"), "base", **QUICK)))
    yield engine, [await undisturbed(engine, session) for session in sessions(engine)]
    await engine.close()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [TALKER, CODE2WAV])
async def test_a_worker_that_is_killed_takes_no_utterance_along(
    voice: tuple[Engine, list[Heard]], workers: Sequence[int]
) -> None:
    await check(*voice, workers, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [TALKER, CODE2WAV, (*TALKER, *CODE2WAV)])
async def test_clones_go_on_behind_their_references(clones: tuple[Engine, list[Heard]], workers: Sequence[int]) -> None:
    await check(*clones, workers, signal.SIGKILL)


@pytest.mark.slow
async def test_one_that_hangs_is_replaced_and_takes_no_utterance_along(clones: tuple[Engine, list[Heard]]) -> None:
    await check(*clones, TALKER, signal.SIGSTOP)


@pytest.mark.parametrize("cut", [7, -2])
async def test_a_stream_may_begin_behind_frames_of_another(clones: tuple[Engine, list[Heard]], cut: int) -> None:
    """Also after more frames than the decoder looks back, which is 26 here: the first ones are not decoded again."""
    engine, expected = clones
    for session, whole in zip(sessions(engine), expected, strict=True):
        known = codes_of(whole)[:cut]
        async with engine.open(session.params, known_codes=known) as stream:
            stream.push_text(session.text)
            stream.end_text()
            rest = await listen(stream, engine.info.frame_samples, next_frame=len(known))
        assert rest.end.reason is whole.end.reason is not FinishReason.FAILED
        np.testing.assert_array_equal(codes_of(rest), codes_of(whole)[cut:])
        behind = whole.samples[len(known) * engine.info.frame_samples :]
        assert np.abs(rest.samples.astype(np.int32) - behind).max() <= 2
    assert cut == 7 or max(whole.num_frames for whole in expected) > 26 - cut
