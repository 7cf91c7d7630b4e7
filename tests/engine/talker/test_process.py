import logging
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.config import EngineConfig
from sonorant.engine.ipc.channel import PeerGone, QueueChannel
from sonorant.engine.ipc.heartbeat import Heartbeat
from sonorant.engine.ipc.messages import (
    BeginStream,
    CancelStream,
    Command,
    EndStream,
    EndText,
    FrameBatch,
    FrameRecord,
    OpenStream,
    PushText,
    Shutdown,
)
from sonorant.engine.talker.process import main, run
from sonorant.engine.talker.schedule.scheduler import Scheduler
from sonorant.engine.talker.stepping import Stepping
from sonorant.engine.types import FinishReason, Int16Array, PromptPlan
from tests.fakes import DepartingChannel, FakeTalkerRunner, open_stream, published_checkpoint


def settings(model: Path) -> EngineConfig:
    return EngineConfig.of(
        model=model, num_slots=2, max_context=64, talker_device="cpu", cpu_threads=torch.get_num_threads()
    )


def tiny_stream(stream_id: int, model: Path) -> OpenStream:
    """Three frames of a tiny checkpoint."""
    ids = load_checkpoint(model).text_ids
    plan = PromptPlan((ids.tts_bos, ids.tts_pad), (-1, 0), (), text_ended=True, num_text_tokens=1)
    command = open_stream(stream_id, max_frames=3, ignore_eos=True)
    return OpenStream(stream_id, plan, command.sampling, command.credit_frames, command.opened_s)


def test_main_loads_says_so_runs_and_stops(tiny: Path, pipe: tuple[Connection, Connection]) -> None:
    commands: DepartingChannel[Command] = DepartingChannel()
    frames: QueueChannel[FrameRecord] = QueueChannel()
    commands.publish([tiny_stream(1, tiny)])
    main(settings(tiny), commands, frames, Heartbeat(), Heartbeat(), {}, pipe[1])
    kind, info = pipe[0].recv()
    assert kind == "ready" and info["num_pages"] > 0
    begin, *batches, end = frames.drain()
    assert isinstance(begin, BeginStream)
    assert [batch.frame_indices.tolist() for batch in batches if isinstance(batch, FrameBatch)] == [[0], [1], [2]]
    assert isinstance(end, EndStream) and end.end.reason is FinishReason.MAX_FRAMES


@pytest.mark.parametrize("head", [None, (1, 0, 0.9)])
def test_what_its_predecessor_told_is_not_found_out_again(
    head: tuple[int, int, float] | None, tiny: Path, pipe: tuple[Connection, Connection]
) -> None:
    commands: QueueChannel[Command] = QueueChannel()
    commands.publish([Shutdown()])
    told = {"alignment_head": head, "step_s": {}}
    main(settings(tiny), commands, QueueChannel(), Heartbeat(), Heartbeat(), told, pipe[1])
    _, info = pipe[0].recv()
    assert info["alignment_head"] == head  # of random weights none would be good enough


def test_main_says_why_it_cannot_load(
    tmp_path: Path, pipe: tuple[Connection, Connection], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(SystemExit) as exit:
        main(settings(tmp_path), QueueChannel(), QueueChannel(), Heartbeat(), Heartbeat(), {}, pipe[1])
    assert exit.value.code == 1
    kind, message = pipe[0].recv()
    assert kind == "unusable" and "config.json is missing" in message
    assert not caplog.records  # the parent says it, once


def test_main_exits_with_an_error_that_the_supervisor_sees(
    tiny: Path, pipe: tuple[Connection, Connection], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    commands: QueueChannel[Command] = QueueChannel()
    commands.publish([tiny_stream(1, tiny), EndText(1), PushText(1, (12345,))])  # text after its end is a bug
    with pytest.raises(SystemExit) as exit:
        main(settings(tiny), commands, QueueChannel(), Heartbeat(), Heartbeat(), {}, pipe[1])
    assert exit.value.code == 1
    assert "talker stopped by an error with 1 streams open" in caplog.text
    assert "12345" not in caplog.text, "no text in logs"


def loop() -> tuple[QueueChannel[Command], QueueChannel[FrameRecord], Scheduler, FakeTalkerRunner]:
    checkpoint = published_checkpoint()
    config = EngineConfig(model=checkpoint.folder)
    return QueueChannel(), QueueChannel(), Scheduler(config, checkpoint, 64), FakeTalkerRunner(checkpoint, config, 64)


def test_shutdown_is_passed_on_and_ends_the_loop() -> None:
    commands, frames, scheduler, runner = loop()
    commands.publish([Shutdown()])
    run(commands, frames, scheduler, runner, Heartbeat())
    assert frames.drain() == [Shutdown()]


def test_the_loop_ends_with_either_neighbour() -> None:
    commands, frames, scheduler, runner = loop()
    commands.close()
    with pytest.raises(PeerGone):
        run(commands, frames, scheduler, runner, Heartbeat())
    commands, frames, scheduler, runner = loop()
    commands.publish([open_stream(1)])
    frames.close()
    with pytest.raises(PeerGone):
        run(commands, frames, scheduler, runner, Heartbeat())


def test_the_loop_is_busy_while_it_steps() -> None:
    _, frames, scheduler, _ = loop()
    commands: DepartingChannel[Command] = DepartingChannel()
    heartbeat = Heartbeat()
    seen = []

    class Witness(FakeTalkerRunner):
        def start(self, *rows: Any) -> None:
            seen.append(heartbeat.busy_since_ns > 0)
            super().start(*rows)

    checkpoint = published_checkpoint()
    witness = Witness(checkpoint, EngineConfig(model=checkpoint.folder), 64)
    commands.publish([open_stream(1, text_ended=True, max_frames=2, ignore_eos=True)])
    with pytest.raises(PeerGone):
        run(commands, frames, scheduler, witness, heartbeat)
    assert seen == [True, True] and heartbeat.busy_since_ns == 0


@pytest.mark.parametrize("is_ahead", [False, True])
def test_commands_that_come_during_a_step_are_taken_after_it(is_ahead: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the next step decided ahead, that one still runs, and what it makes for a cancelled stream is dropped."""
    monkeypatch.setattr("sonorant.engine.talker.process.Stepping", partial(Stepping, ahead_from=1))
    _, frames, scheduler, _ = loop()
    commands: DepartingChannel[Command] = DepartingChannel()
    finished: list[int] = []  # how many steps had been started then

    class Interrupted(FakeTalkerRunner):
        def start(self, *rows: Any) -> None:
            if self.num_steps == 0:
                commands.publish([open_stream(2, text_ended=True, max_frames=1, ignore_eos=True), CancelStream(1)])
            super().start(*rows)

        def finish(self) -> Int16Array:
            assert scheduler.num_streams == 1, "no decision changes during a step"
            finished.append(self.num_steps)
            return super().finish()

        def wait_until_nearly_over(self) -> None:
            pass

    checkpoint = published_checkpoint()
    runner = Interrupted(checkpoint, EngineConfig(model=checkpoint.folder), 64)
    runner.is_asynchronous = is_ahead
    commands.publish([open_stream(1, text_ended=True, max_frames=9, ignore_eos=True)])
    with pytest.raises(PeerGone):
        run(commands, frames, scheduler, runner, Heartbeat())
    assert finished == [1 + is_ahead, 2]
    ends = [(record.stream_id, record.end.reason) for record in frames.drain() if isinstance(record, EndStream)]
    assert ends == [(1, FinishReason.CANCELLED), (2, FinishReason.MAX_FRAMES)]
