"""Workers that die, hang or cannot load, and parents that die: every stream ends, nothing is left, service goes on."""

import asyncio
import dataclasses
import itertools
import os
import resource
import select
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import uvloop

from sonorant.engine import (
    BUILTIN_VOICE_DIR,
    CheckpointError,
    EngineConfig,
    EngineError,
    EngineState,
    EngineStream,
    EngineUnavailable,
    FinishReason,
    PcmChunk,
    StreamEnd,
)
from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.ipc.child import Child
from sonorant.engine.ipc.messages import EndStream, FirstChunk, FlushStream, OpenStream, PcmBatch, SilentStream, encode
from sonorant.engine.ipc.ring import Ring
from sonorant.engine.types import PromptPlan
from sonorant.engine.workers import worker_pair
from sonorant.engine.workers.ring_sizes import RingSizes
from sonorant.engine.workers.workers import Workers
from tests.child_pids import child_pids
from tests.engine.one_engine import OwnedEngine, start_engine
from tests.engine.processes import run_engine
from tests.engine.speech import say, speech, until_idle
from tests.fakes import begin_stream, frame_batch
from tests.open_files import open_files

CONFIG = EngineConfig.of(
    model=BUILTIN_VOICE_DIR, num_slots=4, max_queued_streams=4, max_context=512, cpu_threads=1, hang_timeout_s=3
)
TALKER, CODE2WAV = 0, 1


def worker_pids(engine: OwnedEngine) -> list[int]:
    workers = engine.pair.workers
    return [child.pid for child in workers.children] if workers else []


@pytest.fixture
def assert_no_children(fork_server: None) -> Callable[[], None]:
    """Check that the test's own child processes are gone. A fork server that tests share may still run."""
    others = child_pids()

    def check() -> None:
        assert child_pids() <= others

    return check


class Watched:
    """An engine, its states so far, and a way to wait for the next one."""

    def __init__(self) -> None:
        self.states: list[EngineState] = []
        self._changed = asyncio.Event()

    def on_state(self, state: EngineState) -> None:
        self.states.append(state)
        self._changed.set()

    async def until(self, states: list[EngineState]) -> None:
        async with asyncio.timeout(60):
            while self.states != states:
                await self._changed.wait()
                self._changed.clear()


async def take_all(stream: EngineStream, grants: bool) -> list[PcmChunk | StreamEnd]:
    events: list[PcmChunk | StreamEnd] = []
    while not events or isinstance(events[-1], PcmChunk):
        events.append(await stream.next_event())
        if grants and isinstance(events[-1], PcmChunk):
            stream.grant(events[-1].num_frames)
    return events


@pytest.mark.slow
async def test_workers_that_die_or_hang_are_replaced_until_they_no_longer_load_and_every_stream_ends_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, assert_no_children: Callable[[], None]
) -> None:
    monkeypatch.setattr(worker_pair, "RESTART_DELAYS_S", (0.0,) * 5)
    model = shutil.copytree(BUILTIN_VOICE_DIR, tmp_path / "voice")
    watched, others = Watched(), open_files()
    engine = await start_engine(dataclasses.replace(CONFIG, model=model), watched.on_state)
    num_files, states = (open_files() - others).total(), [EngineState.STARTING, EngineState.READY]
    for worker, signal_number in ((TALKER, signal.SIGKILL), (CODE2WAV, signal.SIGSTOP)):
        pids = worker_pids(engine)
        streams = await speaking_streams(engine)
        os.kill(worker_pids(engine)[worker], signal_number)
        states.append(EngineState.RESTARTING)
        await watched.until(states)
        with pytest.raises(EngineUnavailable, match="restarting"):
            engine.open(speech(engine))
        states.append(EngineState.READY)
        await watched.until(states)
        assert not set(worker_pids(engine)) & set(pids)
        assert (open_files() - others).total() == num_files
        for stream in streams:
            stream.cancel()
            assert (await take_all(stream, grants=True))[-1].reason is FinishReason.CANCELLED  # type: ignore[union-attr]
        await until_idle(engine)
        heard = await say(engine, "Hello there.")
        assert heard.end.reason is FinishReason.COMPLETED

    # Two failures in a row are too many now, however long it is from one to the next.
    clock = itertools.count(time.monotonic() + 1000.0, 1000.0)
    monkeypatch.setattr(worker_pair, "RESTART_DELAYS_S", (0.0,))
    monkeypatch.setattr(worker_pair, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    (model / "model.safetensors").unlink()
    streams = await speaking_streams(engine)
    os.kill(worker_pids(engine)[TALKER], signal.SIGKILL)
    for stream in streams:
        end = (await asyncio.wait_for(take_all(stream, grants=True), 60))[-1]
        assert isinstance(end, StreamEnd) and end.reason is FinishReason.UNAVAILABLE
        assert "model.safetensors" in end.detail
    states += [EngineState.RESTARTING, EngineState.RESTARTING, EngineState.FAILED]
    await watched.until(states)
    with pytest.raises(EngineUnavailable, match="failed"):
        engine.open(speech(engine))
    assert_no_children()
    await engine.close()


async def speaking_streams(engine: OwnedEngine) -> list[EngineStream]:
    """Return streams in all stages: speaking, out of credit, out of text, without any text."""
    endless = speech(engine, max_frames=400, ignore_eos=True)
    streams = [engine.open(endless) for _ in range(4)]
    for stream in streams[:2]:
        stream.push_text("Hello there.")
        stream.end_text()
    streams[2].push_text("Hello there, my friend.")
    for stream in streams[:3]:
        assert isinstance(await asyncio.wait_for(stream.next_event(), 60), PcmChunk)
    return streams


@pytest.mark.slow
async def test_workers_come_back_although_all_files_are_taken() -> None:
    watched = Watched()
    engine = await start_engine(CONFIG, watched.on_state)
    states = [EngineState.STARTING, EngineState.READY, EngineState.RESTARTING, EngineState.READY]
    taken: list[int] = []
    try:
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        os.kill(worker_pids(engine)[TALKER], signal.SIGKILL)
        await watched.until(states)
    finally:
        for fd in taken:
            os.close(fd)
        await engine.close()


@pytest.mark.slow
async def test_that_workers_cannot_be_started_is_no_failure_of_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pair, "START_AGAIN_S", 0.0)
    monkeypatch.setattr(worker_pair, "RESTART_DELAYS_S", (0.0,))  # one more would be the last
    watched = Watched()
    engine = await start_engine(CONFIG, watched.on_state)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    num_tries = 0

    async def start(*args: Any) -> Workers:
        nonlocal num_tries
        num_tries += 1
        resource.setrlimit(resource.RLIMIT_NOFILE, (8, limits[1]) if num_tries < 8 else limits)
        return await start_workers(*args)

    start_workers = Workers.start
    monkeypatch.setattr(Workers, "start", start)
    os.kill(worker_pids(engine)[TALKER], signal.SIGKILL)
    try:
        await watched.until([EngineState.STARTING, EngineState.READY, EngineState.RESTARTING, EngineState.READY])
        assert num_tries == 8
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        await engine.close()


async def test_the_worker_that_died_is_named_and_not_the_one_that_left_because_of_it() -> None:
    watched = Watched()
    engine = await start_engine(CONFIG, watched.on_state)
    workers = engine.pair.workers
    assert workers is not None
    talker, code2wav = workers.children
    for child in workers.children:
        asyncio.get_running_loop().remove_reader(child.pidfd)  # the test tells of their deaths, the first one late
    stream = engine.open(speech(engine), outlives_workers=False)
    stream.push_text("Hello there.")
    assert isinstance(await asyncio.wait_for(stream.next_event(), 60), PcmChunk)
    talker.kill()
    await code2wav.dead()
    engine.pair._died(code2wav)
    assert watched.states == [EngineState.STARTING, EngineState.READY]
    engine.pair._died(talker)
    end = (await take_all(stream, grants=True))[-1]
    assert isinstance(end, StreamEnd) and f"the talker worker {talker.pid} died (exit code -9)" in end.detail
    await engine.close()


@pytest.mark.slow
async def test_errors_of_ours_are_told_and_no_stream_waits_for_ever(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, assert_no_children: Callable[[], None]
) -> None:
    watched, is_broken = Watched(), False

    def on_state(pair: Any, reason: str) -> None:
        tell(pair, reason)
        if is_broken and pair.state is EngineState.RESTARTING:
            raise RuntimeError("nobody expected this")

    async def lose_a_stream() -> list[PcmChunk | StreamEnd]:
        """Make the engine forget one of two streams, so that its records raise; return the events of both."""
        streams = [engine.open(speech(engine)) for _ in range(2)]
        for stream in streams:
            stream.push_text("Hello there.")
            stream.end_text()
        del engine._running[streams[0].run_id]
        return [(await take_all(stream, grants=True))[-1] for stream in streams]

    engine = await start_engine(CONFIG, watched.on_state)
    tell = engine.owner.on_state
    monkeypatch.setattr(engine.owner, "on_state", on_state)
    try:
        for end in await lose_a_stream():
            assert isinstance(end, StreamEnd) and end.reason is FinishReason.COMPLETED
        assert "KeyError while handling records from the workers" in caplog.text
        states = [EngineState.STARTING, EngineState.READY, EngineState.RESTARTING, EngineState.READY]
        await watched.until(states)
        is_broken = True
        for end in await lose_a_stream():
            assert isinstance(end, StreamEnd) and end.reason is FinishReason.UNAVAILABLE
        await watched.until([*states, EngineState.RESTARTING, EngineState.FAILED])
        assert "are not replaced any more" in caplog.text and "nobody expected this" in caplog.text
        with pytest.raises(EngineUnavailable, match="failed"):
            engine.open(speech(engine))
    finally:
        await engine.close()
    assert_no_children()


@pytest.mark.slow
async def test_too_few_open_files_are_reported_and_leave_nothing(assert_no_children: Callable[[], None]) -> None:
    limits, fds = resource.getrlimit(resource.RLIMIT_NOFILE), set(map(int, os.listdir("/proc/self/fd")))
    free = [fd for fd in range(1000) if fd not in fds]
    before = open_files()
    for num_left in range(4, 16):  # each of them one step further on
        resource.setrlimit(resource.RLIMIT_NOFILE, (free[num_left], limits[1]))
        try:
            with pytest.raises(EngineError, match=r"cannot start workers: .*Too many open files"):
                await start_engine(CONFIG)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert not open_files() - before, num_left
        assert_no_children()


async def test_a_checkpoint_that_does_not_load_is_reported_and_leaves_nothing(
    tmp_path: Path, assert_no_children: Callable[[], None]
) -> None:
    before = open_files()
    model = shutil.copytree(BUILTIN_VOICE_DIR, tmp_path / "voice")
    (model / "speech_tokenizer" / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"speech_tokenizer/model\.safetensors"):
        await start_engine(dataclasses.replace(CONFIG, model=model))
    assert not open_files() - before
    assert_no_children()


async def test_starting_can_be_cancelled(assert_no_children: Callable[[], None]) -> None:
    before = open_files()
    others = child_pids()
    task = asyncio.create_task(start_engine(CONFIG))
    while child_pids() <= others:  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not open_files() - before
    assert_no_children()


@pytest.mark.slow
def test_on_uvloop_closing_while_speaking_or_restarting_leaves_nothing(assert_no_children: Callable[[], None]) -> None:
    async def close_while_speaking() -> None:
        engine = await start_engine(CONFIG)
        heard = await say(engine, "Hello there.")
        assert heard.end.reason is FinishReason.COMPLETED
        async with engine.open(speech(engine)) as stream:
            stream.push_text("Hello there")
            await engine.close()
            assert isinstance(end := (await take_all(stream, grants=True))[-1], StreamEnd)
            assert end.reason is FinishReason.UNAVAILABLE

    async def close_while_restarting() -> None:
        watched = Watched()
        engine = await start_engine(CONFIG, watched.on_state)
        os.kill(worker_pids(engine)[TALKER], signal.SIGKILL)
        await watched.until([EngineState.STARTING, EngineState.READY, EngineState.RESTARTING])
        await asyncio.sleep(0.1)
        await engine.close()
        assert watched.states[-1] is EngineState.CLOSED

    opened = []
    for main in (close_while_speaking, close_while_restarting):
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())
        opened.append(open_files())
        assert_no_children()
    assert not opened[1] - opened[0]  # not that of before: the first uvloop of a process opens what all share


@pytest.mark.slow
def test_no_worker_outlives_a_killed_parent() -> None:
    with closing(Child.spawn("parent", run_engine, (CONFIG,))) as parent:
        workers = [os.pidfd_open(pid) for pid in parent.ready.recv()]
        parent.kill()
        for worker in workers:
            poll = select.poll()
            poll.register(worker, select.POLLIN)
            assert poll.poll(5000)  # below 0.3 s unless the machine is overloaded
            os.close(worker)


def test_ring_sizes_hold_all_that_may_be_in_flight() -> None:
    """Rings hold as many one-frame records as all streams have credit for, and the largest record of each ring."""
    checkpoint = load_checkpoint(BUILTIN_VOICE_DIR)
    sizes = RingSizes.of(CONFIG, checkpoint)
    codes = np.zeros((1, checkpoint.talker.num_codebooks), np.int16)
    samples = np.zeros((1, checkpoint.codec.frame_samples), np.int16)
    one, index = np.zeros(1, np.int64), np.zeros(1, np.int32)
    end = EndStream(1, StreamEnd(FinishReason.FAILED, 0, 0.0, 0.0, "x" * 500))
    frames, pcm, commands = Ring(sizes.frames), Ring(sizes.pcm), Ring(sizes.commands)
    for _ in range(CONFIG.max_streams):
        assert frames.write(encode(begin_stream(1)))
        for _ in range(CONFIG.talker.credit_frames):
            assert frames.write(encode(frame_batch([0], [0], codes)))
            assert frames.write(encode(FlushStream(1)))
            assert pcm.write(encode(PcmBatch(one, index, 1, samples, codes[None])))
        assert pcm.write(encode(FirstChunk(1, *[0.0] * 7)))
        assert pcm.write(encode(SilentStream(1, 75)))
        assert frames.write(encode(end))
        assert pcm.write(encode(end))
    rows = CONFIG.code2wav.max_decode_batch
    credit = CONFIG.talker.credit_frames
    batch = PcmBatch(
        one.repeat(rows),
        index.repeat(rows),
        credit,
        np.tile(samples, (rows, credit)),
        np.tile(codes, (rows, credit, 1)),
    )
    assert sum(map(len, encode(batch))) <= pcm.max_payload_bytes
    reference = np.zeros((CONFIG.talker.max_context, checkpoint.talker.num_codebooks), np.int16)
    ids = tuple(range(2**20, 2**20 + CONFIG.talker.max_context))
    x_vector = np.zeros(checkpoint.talker.stack.hidden_size, np.float32)
    plan = PromptPlan(ids, ids, ids, text_ended=True, num_text_tokens=1)
    opening = OpenStream(1, plan, checkpoint.default_sampling, 1, 0.0, x_vector, reference)
    assert sum(map(len, encode(opening))) <= commands.max_payload_bytes
    assert sum(map(len, encode(begin_stream(1, reference)))) <= frames.max_payload_bytes
    for ring in (frames, pcm, commands):
        ring.close()
