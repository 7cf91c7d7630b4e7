"""Several worker pairs as one engine, with real processes: voices by checkpoint, pairs that stand in for others."""

import asyncio
import logging
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sonorant.engine import (
    CheckpointError,
    Engine,
    EngineConfig,
    EngineError,
    EngineHere,
    EngineOverloaded,
    EnginePool,
    EngineState,
    EngineUnavailable,
    FinishReason,
    InvalidSynthesis,
    PcmChunk,
    StreamEnd,
    SynthesisParams,
    UnknownSpeaker,
    WarmUp,
    start_here,
)
from sonorant.engine.serving import pool
from sonorant.engine.serving.warm_up import warm_up
from sonorant.engine.workers.workers import Workers
from tests.child_pids import child_names, child_pids
from tests.engine.speech import Heard, assert_same_speech, listen
from tests.tiny_checkpoint import QUICK, write_tiny_checkpoint

TEXT = "the quick brown fox"


def config(model: Path) -> EngineConfig:
    return EngineConfig.of(
        model, num_slots=4, max_queued_streams=4, max_context=256, cpu_threads=1, talker_device="cpu", page_size=8
    )


@pytest.fixture(scope="module")
def custom_voice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("models") / "custom-voice", "custom_voice", **QUICK)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(
        tmp_path_factory.mktemp("models") / "base", "base", hidden=48, head_dim=16, predictor_hidden=48
    )


class Watched:
    """The states of a pool, each new one once."""

    def __init__(self) -> None:
        self.states: list[EngineState] = []

    def on_state(self, state: EngineState) -> None:
        if self.states[-1:] != [state]:
            self.states.append(state)

    async def until(self, *states: EngineState) -> None:
        async with asyncio.timeout(60):
            while self.states != list(states):  # noqa: ASYNC110
                await asyncio.sleep(0.01)


def params(engines: EnginePool, **voice: object) -> SynthesisParams:
    sampling = replace(engines.info.default_sampling, max_frames=12, ignore_eos=True)
    return SynthesisParams(sampling, **voice)  # type: ignore[arg-type]


async def say(engines: EnginePool, wanted: SynthesisParams) -> Heard:
    async with engines.open(wanted) as stream:
        stream.push_text(TEXT)
        stream.end_text()
        return await listen(stream, engines.info.frame_samples)


@pytest.fixture(autouse=True)
def no_child_is_left(fork_server: None) -> Iterator[None]:
    before = child_pids()
    yield
    assert child_pids() == before


def worker_pids(engines: EngineHere, pair: int) -> list[int]:
    workers = engines.owner._pairs[pair].workers
    return [child.pid for child in workers.children] if workers else []


@pytest.mark.slow
async def test_each_voice_is_spoken_by_a_checkpoint_that_has_it_and_a_pair_that_dies_takes_no_other_along(
    custom_voice: Path, base: Path
) -> None:
    watched = Watched()
    engines = await start_here([config(custom_voice), config(base)], watched.on_state)
    try:
        await watched.until(EngineState.STARTING, EngineState.READY)
        assert {pair.state for pair in engines.pairs()} == {EngineState.READY}
        assert [info.task for info in engines.infos] == ["custom_voice", "base"]
        assert engines.info.speakers == engines.infos[0].speakers
        assert engines.info.max_streams == 16

        preset = params(engines, speaker=engines.info.speakers[0])
        cloned = params(engines, x_vector=np.ones(48, np.float32))
        async with asyncio.timeout(60):  # a warm-up that was cut short may still be on its way out
            while engines.num_streams:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        for wanted, pair in ((preset, 0), (cloned, 1)):
            async with engines.open(wanted):
                assert [each.stats.num_streams for each in engines.pairs()] == [int(pair == 0), int(pair == 1)]
            assert (await say(engines, wanted)).end.reason is FinishReason.MAX_FRAMES
            assert engines.explain(wanted, TEXT).text == TEXT
        with pytest.raises(UnknownSpeaker, match="custom-voice has no speaker 'nobody'"):
            engines.check(params(engines, speaker="nobody"))
        with pytest.raises(InvalidSynthesis, match="shape"):
            engines.check(params(engines, x_vector=np.ones(47, np.float32), reference_text="Hello."))

        async with engines.open(preset) as going_on, engines.open(cloned) as ending:
            for stream in (going_on, ending):
                stream.push_text(TEXT)
            first = await ending.next_event()
            assert isinstance(first, PcmChunk)
            os.kill(worker_pids(engines, 1)[0], signal.SIGKILL)
            async with asyncio.timeout(60):
                while engines.pairs()[1].state is EngineState.READY:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            assert engines.state is EngineState.READY
            assert [pair.state for pair in engines.pairs()] == [EngineState.READY, EngineState.RESTARTING]
            with pytest.raises(EngineUnavailable, match="the engine of base is restarting"):
                engines.open(cloned)
            assert (await say(engines, preset)).end.reason is FinishReason.MAX_FRAMES
            for stream, next_frame in ((going_on, 0), (ending, first.num_frames)):
                stream.end_text()
                heard = await listen(stream, engines.info.frame_samples, next_frame)
                assert (heard.end.reason, heard.end.num_frames) == (FinishReason.MAX_FRAMES, 12)
        async with asyncio.timeout(60):
            while engines.pairs()[1].state is not EngineState.READY:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert (await say(engines, cloned)).end.reason is FinishReason.MAX_FRAMES
        await watched.until(EngineState.STARTING, EngineState.READY)
    finally:
        await engines.close()
    assert watched.states[-1] is EngineState.CLOSED


@pytest.mark.slow
async def test_replicas_share_the_streams_and_stand_in_for_each_other(custom_voice: Path) -> None:
    watched = Watched()
    engines = await start_here([config(custom_voice)] * 2, watched.on_state)
    try:
        await watched.until(EngineState.STARTING, EngineState.READY)
        assert len(engines.infos) == 1
        wanted = params(engines, speaker=engines.info.speakers[0])
        alone = await say(engines, wanted)
        streams = [engines.open(wanted) for _ in range(6)]
        assert [pair.stats.num_streams for pair in engines.pairs()] == [3, 3]
        room = engines.info.max_streams - 6
        with pytest.raises(EngineOverloaded, match="kept for others"):
            engines.open(wanted, spare=room)
        streams.append(engines.open(wanted, spare=room - 1))
        for stream in streams:
            stream.cancel()
        heard = await asyncio.gather(*(say(engines, wanted) for _ in range(8)))
        for each in heard:  # it does not matter which pair speaks
            assert_same_speech(each.samples, alone.samples)

        stream = engines.open(wanted, credit_frames=3)
        stream.push_text(TEXT)
        stream.end_text()
        chunks = [await stream.next_event()]
        os.kill(worker_pids(engines, 0)[1], signal.SIGKILL)
        async with asyncio.timeout(60):
            while engines.pairs()[0].state is EngineState.READY:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        assert engines.state is EngineState.READY
        async with asyncio.timeout(60):  # it goes on with the other pair, once its owner has judged the death
            while [pair.stats.num_streams for pair in engines.pairs()] != [0, 1]:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        while not isinstance(chunks[-1], StreamEnd):
            stream.grant(chunks[-1].num_frames)
            chunks.append(await asyncio.wait_for(stream.next_event(), 60))
        heard = np.concatenate([chunk.samples for chunk in chunks if isinstance(chunk, PcmChunk)])
        assert_same_speech(heard, alone.samples)
        assert_same_speech((await say(engines, wanted)).samples, alone.samples)
        async with asyncio.timeout(60):
            while engines.pairs()[0].state is not EngineState.READY:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        for pair in (0, 1):  # both at once: none stands in for the other
            os.kill(worker_pids(engines, pair)[0], signal.SIGKILL)
        await watched.until(EngineState.STARTING, EngineState.READY, EngineState.RESTARTING, EngineState.READY)
    finally:
        await engines.close()


async def test_who_waits_may_open_a_stream_while_workers_are_replaced_and_who_does_not_may_not(
    custom_voice: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched, may_start, start = Watched(), asyncio.Event(), Workers.start

    async def start_when_told(*args: Any) -> Workers:
        await may_start.wait()
        return await start(*args)

    engines = await start_here([config(custom_voice)], watched.on_state)
    monkeypatch.setattr(Workers, "start", start_when_told)
    try:
        await watched.until(EngineState.STARTING, EngineState.READY)
        wanted = params(engines, speaker=engines.info.speakers[0])
        alone = await say(engines, wanted)
        os.kill(worker_pids(engines, 0)[0], signal.SIGKILL)
        await watched.until(EngineState.STARTING, EngineState.READY, EngineState.RESTARTING)
        with pytest.raises(EngineUnavailable, match="restarting"):
            engines.open(wanted)
        async with engines.open(wanted, waits=True) as stream:
            stream.push_text(TEXT)
            stream.end_text()
            may_start.set()
            heard = await listen(stream, engines.info.frame_samples)
        assert heard.end.reason is FinishReason.MAX_FRAMES
        assert_same_speech(heard.samples, alone.samples)
    finally:
        await engines.close()
    with pytest.raises(EngineUnavailable, match="closed"):
        engines.open(wanted, waits=True)


@pytest.mark.slow
async def test_a_standby_takes_no_streams_until_a_pair_goes_down_and_then_all_of_its(custom_voice: Path) -> None:
    configs = [config(custom_voice), replace(config(custom_voice), is_standby=True)]
    watched = Watched()
    engines = await start_here(configs, watched.on_state)
    try:
        await watched.until(EngineState.STARTING, EngineState.READY)
        assert engines.pairs()[1].state is EngineState.STARTING, "a standby is loaded after the pair that serves"
        assert engines.info.max_streams == 8, "a standby adds no places"
        async with asyncio.timeout(60):
            while engines.pairs()[1].state is not EngineState.READY:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        wanted = params(engines, speaker=engines.info.speakers[0])
        alone = await say(engines, wanted)
        streams = [engines.open(wanted, credit_frames=3) for _ in range(4)]
        for stream in streams:
            stream.push_text(TEXT)
            stream.end_text()
        firsts = [await asyncio.wait_for(stream.next_event(), 60) for stream in streams]
        assert [pair.stats.num_streams for pair in engines.pairs()] == [4, 0]
        for pair in (0, 1):  # the one that was the standby before serves now
            os.kill(worker_pids(engines, pair)[pair], signal.SIGKILL)
            for stream in streams:
                stream.grant(3)
            async with asyncio.timeout(60):
                while engines.pairs()[1 - pair].stats.num_streams < 4:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            async with engines.open(wanted):
                assert engines.pairs()[1 - pair].stats.num_streams == 5
            async with asyncio.timeout(60):
                while engines.pairs()[pair].state is not EngineState.READY:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        for stream, first in zip(streams, firsts, strict=True):
            assert isinstance(first, PcmChunk)
            stream.grant(first.num_frames)
            rest = await listen(stream, engines.info.frame_samples, first.num_frames)
            samples = np.concatenate([first.samples, rest.samples])
            assert_same_speech(samples, alone.samples)
        await watched.until(EngineState.STARTING, EngineState.READY)
    finally:
        await engines.close()


async def test_a_pair_that_could_not_speak_is_tried_again(custom_voice: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    num_tries = 0

    async def speak_at_third(engine: Engine) -> WarmUp:
        nonlocal num_tries
        num_tries += 1
        if num_tries < 3:
            raise EngineError("not yet")
        return await warm_up(engine)

    monkeypatch.setattr(pool, "warm_up", speak_at_third)
    monkeypatch.setattr(pool, "TRY_AGAIN_S", (0.0,))
    watched = Watched()
    engines = await start_here([config(custom_voice)], watched.on_state)
    try:
        await watched.until(EngineState.STARTING, EngineState.FAILED, EngineState.READY)
    finally:
        await engines.close()


async def test_the_warm_up_of_a_slow_machine_ends_early(custom_voice: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engines = await start_here([config(custom_voice)])
    try:
        monkeypatch.setattr("sonorant.engine.serving.warm_up.MOST_S", 0.0)
        (spoken,) = await engines.rehearse()
        assert spoken.num_frames == 1, "of 25"
    finally:
        await engines.close()


@pytest.mark.slow
async def test_a_pool_with_a_pair_that_does_not_load_leaves_nothing(custom_voice: Path, base: Path) -> None:
    broken = config(base).but(load_format="safetensors", code2wav_dtype="tf32")  # which the CPU has not
    with pytest.raises(EngineError, match="tf32") as failure:
        await start_here([config(custom_voice), broken])
    assert not isinstance(failure.value, CheckpointError), "the checkpoint is not to blame"


async def test_an_error_in_following_a_pair_is_told_at_once_and_the_pair_takes_no_more_streams(
    base: Path, caplog: pytest.LogCaptureFixture
) -> None:
    states: list[EngineState] = []

    def on_state(state: EngineState) -> None:
        states.append(state)
        if state is EngineState.READY:
            raise RuntimeError("nobody expected this")

    engines = await start_here([config(base)], on_state)
    try:
        async with asyncio.timeout(60):
            while states[-1] is not EngineState.FAILED:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert "the engine of base takes no more streams" in record.message
        assert record.exc_info and str(record.exc_info[1]) == "nobody expected this"
        with pytest.raises(EngineUnavailable, match="the engine of base is failed"):
            engines.open(params(engines, x_vector=np.ones(48, np.float32)))
    finally:
        await engines.close()
    assert states == [EngineState.STARTING, EngineState.READY, EngineState.FAILED, EngineState.CLOSED]


async def test_checkpoints_of_different_codecs_are_refused(custom_voice: Path, tmp_path: Path) -> None:
    other = write_tiny_checkpoint(tmp_path / "other", "base", upsample_rates=(8, 5, 4, 2))
    with pytest.raises(CheckpointError, match="samples per frame"):
        await start_here([config(custom_voice), config(other)])


@pytest.mark.parametrize("has_begun", [False, True])
async def test_starting_can_be_cancelled(custom_voice: Path, has_begun: bool) -> None:
    """Cancelled before any worker has started, or when one has."""
    while True:
        task = asyncio.create_task(start_here([config(custom_voice)] * 2))
        await asyncio.sleep(0)
        while has_begun and "sonorant-talker" not in child_names() and not task.done():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        task.cancel()
        try:
            started = await task
        except asyncio.CancelledError:
            return
        await started.close()  # it was ready before this test looked
