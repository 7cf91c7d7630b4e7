"""Steps that are decided ahead: in which order the runner is asked, and that every stream says the same."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.config import EngineConfig
from sonorant.engine.ipc.channel import QueueChannel
from sonorant.engine.ipc.messages import EndStream, FrameBatch, FrameRecord, OpenStream
from sonorant.engine.talker.run.runner import TalkerRunner
from sonorant.engine.talker.schedule.scheduler import Scheduler
from sonorant.engine.talker.schedule.stream import NEVER
from sonorant.engine.talker.stepping import Stepping, StepRunner
from sonorant.engine.types import FinishReason, Int16Array
from tests.engine.talker.driver import Utterance
from tests.engine.talker.run._support import PAGES_PER_SLOT, checkpoint, new_runner, utterances
from tests.fakes import FakeTalkerRunner, open_stream, published_checkpoint

__all__ = ["checkpoint"]  # the fixture


class Asked(FakeTalkerRunner):
    def __init__(self, *, is_asynchronous: bool) -> None:
        published = published_checkpoint()
        super().__init__(published, EngineConfig(model=published.folder), 64)
        self.is_asynchronous = is_asynchronous
        self.calls: list[str] = []

    def start(self, *rows: object) -> None:
        self.calls.append("start")
        super().start(*rows)  # type: ignore[arg-type]

    def wait_until_nearly_over(self) -> None:
        super().wait_until_nearly_over()
        self.calls.append("wait")

    def finish(self) -> Int16Array:
        self.calls.append("finish")
        return super().finish()


def spoken(runner: StepRunner, scheduler: Scheduler, ahead_from: int) -> dict[int, list[Int16Array]]:
    """Run until all streams have ended; return their frames."""
    outbox = QueueChannel[FrameRecord]()
    stepping = Stepping(outbox, scheduler, runner, ahead_from)
    said: dict[int, list[Int16Array]] = {}
    while scheduler.num_streams:
        assert stepping.turn().num_rows or not scheduler.num_streams
        for record in outbox.drain():
            if isinstance(record, FrameBatch):
                for stream_id, index, codes in zip(
                    record.stream_ids.tolist(), record.frame_indices.tolist(), record.codes, strict=True
                ):
                    assert index == len(said.setdefault(stream_id, []))
                    said[stream_id].append(codes)
            if isinstance(record, EndStream):
                assert record.end.reason in (FinishReason.COMPLETED, FinishReason.MAX_FRAMES)
                assert record.end.num_frames == len(said.get(record.stream_id, []))
    stepping.turn()
    scheduler.check_conservation()
    return said


def scheduler_of(num_streams: int, max_frames: int) -> Scheduler:
    published = published_checkpoint()
    scheduler = Scheduler(EngineConfig(model=published.folder), published, 64)
    for stream_id in range(1, num_streams + 1):
        scheduler.on_record(open_stream(stream_id, text_ended=True, max_frames=max_frames, ignore_eos=True))
    return scheduler


def test_with_many_streams_a_step_is_started_before_the_one_before_it_is_finished() -> None:
    runner = Asked(is_asynchronous=True)
    spoken(runner, scheduler_of(2, 3), ahead_from=2)
    assert runner.calls == ["start", "wait", "start", "finish", "wait", "start", "finish", "wait", "finish"]


@pytest.mark.parametrize("is_asynchronous", [False, True])
def test_with_few_streams_or_on_the_cpu_steps_are_run_one_by_one(is_asynchronous: bool) -> None:
    runner = Asked(is_asynchronous=is_asynchronous)
    spoken(runner, scheduler_of(2, 3), ahead_from=3 if is_asynchronous else 1)
    assert runner.calls == ["start", "finish"] * 3


def test_the_row_of_a_stream_that_has_ended_is_dropped() -> None:
    """The model ends each stream at a frame of its own, which the step decided ahead does not know."""
    said = []
    for ahead_from in (1, NEVER):
        published = published_checkpoint()
        scheduler = Scheduler(EngineConfig.of(published.folder, num_slots=2), published, 64)
        for stream_id in range(1, 8):
            scheduler.on_record(open_stream(stream_id, text_ended=True, max_frames=40, credit_frames=40))
        said.append(spoken(Asked(is_asynchronous=True), scheduler, ahead_from))
    ahead, one_by_one = said
    assert {id: np.array(codes).tolist() for id, codes in ahead.items()} == {
        id: np.array(codes).tolist() for id, codes in one_by_one.items()
    }


def codes_of(
    runner: TalkerRunner, checkpoint: Checkpoint, num_slots: int, made: list[Utterance], ahead_from: int
) -> dict[int, list[Int16Array]]:
    config = EngineConfig.of(
        checkpoint.folder, num_slots=num_slots, num_pages=runner.num_pages, max_context=PAGES_PER_SLOT * 16
    )
    scheduler = Scheduler(config, checkpoint, runner.num_pages)
    for stream_id, u in enumerate(made):
        sampling = dataclasses.replace(u.sampling, max_frames=u.num_frames)
        scheduler.on_record(OpenStream(stream_id, u.plan, sampling, 1000, 0.0, u.x_vector, u.reference_codes, None))
    return spoken(runner, scheduler, ahead_from)


def assert_the_same(checkpoint: Checkpoint, device: str, num_slots: int, made: list[Utterance]) -> None:
    runner = new_runner(checkpoint, device, num_slots, fused=True)
    assert runner.is_asynchronous
    ahead = codes_of(runner, checkpoint, num_slots, made, 1)
    one_by_one = codes_of(runner, checkpoint, num_slots, made, NEVER)
    assert ahead.keys() == one_by_one.keys()
    for stream_id, codes in ahead.items():
        np.testing.assert_array_equal(codes, one_by_one[stream_id])


@pytest.mark.rare
@pytest.mark.slow
def test_nobody_waits_for_a_device_that_has_failed(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sonorant.engine.kernels.talker.attention.WARPS_WANTED", 1)  # each costs milliseconds here
    steps: Any = new_runner(checkpoint, "cpu", 1, fused=True)._steps

    def fail() -> bool:
        raise RuntimeError("CUDA error")

    steps._is_nearly_over[0] = 0
    steps._last = dataclasses.replace(steps._last, is_over=fail)
    with pytest.raises(RuntimeError, match="CUDA error"):
        steps.wait_until_nearly_over()


@pytest.mark.slow
@pytest.mark.rare
def test_fused_steps_say_the_same(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sonorant.engine.kernels.talker.attention.WARPS_WANTED", 1)  # each costs milliseconds here
    assert_the_same(checkpoint, "cpu", 1, utterances(checkpoint, 2, 3))


@pytest.mark.gpu
def test_they_say_the_same_on_a_gpu_where_slots_change_hands(checkpoint: Checkpoint) -> None:
    assert_the_same(checkpoint, "cuda", 4, utterances(checkpoint, 13, 30))
