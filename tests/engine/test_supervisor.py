"""Workers that die, hang or cannot load, and parents that die: every stream ends, nothing is left, service goes on."""

import asyncio
import dataclasses
import itertools
import os
import resource
import select
import shutil
import signal
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import uvloop

from engine import (
    BUILTIN_VOICE_DIR,
    CheckpointError,
    Engine,
    EngineConfig,
    EngineError,
    EngineState,
    EngineStream,
    EngineUnavailable,
    FinishReason,
    PcmChunk,
    StreamEnd,
    supervisor,
)
from engine.checkpoint import load_checkpoint
from engine.ipc.child import Child
from engine.ipc.messages import EndStream, FirstChunk, FlushStream, OpenStream, PcmBatch, SilentStream, encode
from engine.ipc.ring import Ring
from engine.supervisor import RingSizes
from engine.types import PromptPlan
from tests.engine.processes import run_engine
from tests.engine.speech import say, speech
from tests.fakes import begin_stream, frame_batch

CONFIG = EngineConfig(
    model=BUILTIN_VOICE_DIR, num_slots=4, max_queued_streams=4, max_context=512, cpu_threads=1, hang_timeout_s=3
)
TALKER, CODE2WAV = 0, 1


def num_fds() -> int:
    return len(os.listdir("/proc/self/fd"))


def worker_pids(engine: Engine) -> list[int]:
    workers = engine._supervisor._workers
    return [child.pid for child in workers.children] if workers else []


def assert_no_children() -> None:
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


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
async def test_workers_that_die_or_hang_end_every_stream_once_and_are_replaced_until_they_no_longer_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "RESTART_DELAYS_S", (0.0,) * 5)
    monkeypatch.setattr(supervisor, "FAILURES_WINDOW_S", 3600.0)
    model = shutil.copytree(BUILTIN_VOICE_DIR, tmp_path / "voice")
    watched = Watched()
    engine = await Engine.start(dataclasses.replace(CONFIG, model=model), watched.on_state)
    fds, states = num_fds(), [EngineState.STARTING, EngineState.READY]
    for worker, signal_number in itertools.product((TALKER, CODE2WAV), (signal.SIGKILL, signal.SIGSTOP)):
        pids = worker_pids(engine)
        await bring_down(engine, worker, signal_number)
        states += [EngineState.RESTARTING, EngineState.READY]
        await watched.until(states)
        assert not set(worker_pids(engine)) & set(pids)
        assert num_fds() == fds
        heard = await say(engine, "Hello there.")
        assert heard.end.reason is FinishReason.COMPLETED

    (model / "model.safetensors").unlink()
    await bring_down(engine, TALKER, signal.SIGKILL)
    states += [EngineState.RESTARTING, EngineState.RESTARTING, EngineState.FAILED]
    await watched.until(states)
    with pytest.raises(EngineUnavailable, match="failed"):
        engine.open(speech(engine))
    assert_no_children()
    await engine.close()


async def bring_down(engine: Engine, worker: int, signal_number: signal.Signals) -> None:
    """Kill or stop a worker in the middle of streams in all stages, and see them end."""
    endless = speech(engine, max_frames=400, ignore_eos=True)
    # Speaking, out of credit, out of text, without any text.
    speaking, without_credit, starved, _ = streams = [engine.open(endless) for _ in range(4)]
    tasks = [asyncio.create_task(take_all(stream, grants=stream is speaking)) for stream in streams]
    for stream in (speaking, without_credit):
        stream.push_text("Hello there.")
        stream.end_text()
    starved.push_text("Hello there, my friend.")
    while engine.stats().ring_bytes[0]:  # noqa: ASYNC110  everything has reached the talker
        await asyncio.sleep(0.01)

    os.kill(worker_pids(engine)[worker], signal_number)
    for event in [events[-1] for events in await asyncio.wait_for(asyncio.gather(*tasks), 60)]:
        assert isinstance(event, StreamEnd) and event.reason is FinishReason.UNAVAILABLE
        assert ("talker", "code2wav")[worker] in event.detail
    assert engine.num_streams == 0
    with pytest.raises(EngineUnavailable, match="restarting"):
        engine.open(endless)
    for stream in streams:  # their owners may not have noticed yet
        stream.push_text("more")
        stream.grant(100)
        stream.cancel()


async def test_errors_of_ours_are_told_and_no_stream_waits_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    watched, is_broken = Watched(), False

    def on_state(state: EngineState) -> None:
        watched.on_state(state)
        if is_broken and state is EngineState.RESTARTING:
            raise RuntimeError("nobody expected this")

    async def lose_a_stream() -> None:
        """Its records are then what nobody can take."""
        lost, other = engine.open(speech(engine)), engine.open(speech(engine))
        del engine._streams[lost.stream_id]
        for stream in (lost, other):
            stream.push_text("Hello there.")
        end = (await take_all(other, grants=True))[-1]
        assert isinstance(end, StreamEnd) and end.reason is FinishReason.UNAVAILABLE
        assert "KeyError at what the workers sent" in end.detail

    engine = await Engine.start(CONFIG, on_state)
    try:
        await lose_a_stream()
        states = [EngineState.STARTING, EngineState.READY, EngineState.RESTARTING, EngineState.READY]
        await watched.until(states)
        is_broken = True
        await lose_a_stream()
        await watched.until([*states, EngineState.RESTARTING, EngineState.FAILED])
        assert "are replaced no more" in caplog.text and "nobody expected this" in caplog.text
        with pytest.raises(EngineUnavailable, match="failed"):
            engine.open(speech(engine))
    finally:
        await engine.close()
    assert_no_children()


async def test_too_few_open_files_are_reported_and_leave_nothing() -> None:
    limits, fds = resource.getrlimit(resource.RLIMIT_NOFILE), set(map(int, os.listdir("/proc/self/fd")))
    free = [fd for fd in range(1000) if fd not in fds]
    num_before = num_fds()
    for num_left in range(4, 22):  # each of them one step further on
        resource.setrlimit(resource.RLIMIT_NOFILE, (free[num_left], limits[1]))
        try:
            with pytest.raises(EngineError, match=r"cannot start workers: .*Too many open files"):
                await Engine.start(CONFIG)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert num_fds() == num_before, num_left
        assert_no_children()


async def test_a_checkpoint_that_does_not_load_is_reported_and_leaves_nothing(tmp_path: Path) -> None:
    fds = num_fds()
    model = shutil.copytree(BUILTIN_VOICE_DIR, tmp_path / "voice")
    (model / "speech_tokenizer" / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"speech_tokenizer/model\.safetensors"):
        await Engine.start(dataclasses.replace(CONFIG, model=model))
    assert num_fds() == fds
    assert_no_children()


async def test_starting_can_be_cancelled() -> None:
    fds = num_fds()
    task = asyncio.create_task(Engine.start(CONFIG))
    await asyncio.sleep(0.2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert num_fds() == fds
    assert_no_children()


def test_on_uvloop_closing_while_speaking_or_restarting_leaves_nothing() -> None:
    async def close_while_speaking() -> None:
        engine = await Engine.start(CONFIG)
        heard = await say(engine, "Hello there.")
        assert heard.end.reason is FinishReason.COMPLETED
        async with engine.open(speech(engine)) as stream:
            stream.push_text("Hello there")
            await engine.close()
            assert isinstance(end := (await take_all(stream, grants=True))[-1], StreamEnd)
            assert end.reason is FinishReason.UNAVAILABLE

    async def close_while_restarting() -> None:
        watched = Watched()
        engine = await Engine.start(CONFIG, watched.on_state)
        os.kill(worker_pids(engine)[TALKER], signal.SIGKILL)
        await watched.until([EngineState.STARTING, EngineState.READY, EngineState.RESTARTING])
        await asyncio.sleep(0.1)
        await engine.close()
        assert watched.states[-1] is EngineState.CLOSED

    fds = []
    for main in (close_while_speaking, close_while_restarting):
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())
        fds.append(num_fds())
        assert_no_children()
    assert fds[0] == fds[1]  # not that of before: the first uvloop of a process opens what all share


def test_no_worker_outlives_a_killed_parent() -> None:
    with closing(Child("parent", run_engine, (CONFIG,), [])) as parent:
        workers = [os.pidfd_open(pid) for pid in parent.ready.recv()]
        parent.kill()
        for worker in workers:
            poll = select.poll()
            poll.register(worker, select.POLLIN)
            assert poll.poll(5000)  # below 0.3 s unless the machine is overloaded
            os.close(worker)


def test_ring_sizes_hold_all_that_may_be_in_flight() -> None:
    """As many one-frame records as there is credit for, of every stream, and the largest record of each ring."""
    checkpoint = load_checkpoint(BUILTIN_VOICE_DIR)
    sizes = RingSizes.of(CONFIG, checkpoint)
    codes = np.zeros((1, checkpoint.talker.num_codebooks), np.int16)
    samples = np.zeros((1, checkpoint.codec.frame_samples), np.int16)
    one, index = np.zeros(1, np.int64), np.zeros(1, np.int32)
    end = EndStream(1, StreamEnd(FinishReason.FAILED, 0, 0.0, 0.0, "x" * 500))
    frames, pcm, commands = Ring(sizes.frames), Ring(sizes.pcm), Ring(sizes.commands)
    for _ in range(CONFIG.max_streams):
        assert frames.write(encode(begin_stream(1)))
        for _ in range(CONFIG.credit_frames):
            assert frames.write(encode(frame_batch([0], [0], codes)))
            assert frames.write(encode(FlushStream(1)))
            assert pcm.write(encode(PcmBatch(one, index, 1, samples)))
        assert pcm.write(encode(FirstChunk(1, *[0.0] * 7)))
        assert pcm.write(encode(SilentStream(1, 75)))
        assert frames.write(encode(end))
        assert pcm.write(encode(end))
    rows = CONFIG.max_decode_batch
    batch = PcmBatch(
        one.repeat(rows), index.repeat(rows), CONFIG.credit_frames, np.tile(samples, (rows, CONFIG.credit_frames))
    )
    assert sum(map(len, encode(batch))) <= pcm.max_payload_bytes
    reference = np.zeros((CONFIG.max_context, checkpoint.talker.num_codebooks), np.int16)
    ids = tuple(range(2**20, 2**20 + CONFIG.max_context))
    x_vector = np.zeros(checkpoint.talker.stack.hidden_size, np.float32)
    plan = PromptPlan(ids, ids, ids, text_ended=True, num_text_tokens=1)
    opening = OpenStream(1, plan, checkpoint.default_sampling, 1, 0.0, x_vector, reference)
    assert sum(map(len, encode(opening))) <= commands.max_payload_bytes
    assert sum(map(len, encode(begin_stream(1, reference)))) <= frames.max_payload_bytes
    for ring in (frames, pcm, commands):
        ring.close()
