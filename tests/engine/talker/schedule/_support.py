"""Streams that go on behind frames that were made before."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.config import EngineConfig
from sonorant.engine.ipc.messages import EndStream, FrameBatch, OpenStream
from sonorant.engine.talker.run.runner import TalkerRunner
from sonorant.engine.talker.schedule.scheduler import Scheduler
from sonorant.engine.types import FinishReason, Int16Array
from tests.engine.talker.driver import Utterance


@dataclass(frozen=True)
class Setup:
    checkpoint: Checkpoint
    config: EngineConfig
    runner: TalkerRunner


def make(
    setup: Setup, utterance: Utterance, known: Sequence[Int16Array], num_frames: Sequence[int]
) -> list[Int16Array]:
    """Codes of streams that go on behind known frames [frames, codebooks] each, up to so many frames: what is new."""
    scheduler = Scheduler(setup.config, setup.checkpoint, setup.runner.num_pages)
    made: list[list[Int16Array]] = [[] for _ in known]
    voice = utterance.x_vector, utterance.reference_codes
    for stream_id, (codes, count) in enumerate(zip(known, num_frames, strict=True)):
        sampling = dataclasses.replace(utterance.sampling, max_frames=count)
        before = codes if len(codes) else None
        scheduler.on_record(OpenStream(stream_id, utterance.plan, sampling, count, 0.0, *voice, before))
    while scheduler.num_streams:
        plan = scheduler.next_step()
        for record in scheduler.apply(plan, setup.runner.step(plan.prefills, plan.decodes)):
            match record:
                case FrameBatch():
                    for stream_id, index, codes in zip(
                        record.stream_ids.tolist(), record.frame_indices.tolist(), record.codes, strict=True
                    ):
                        assert index == len(known[stream_id]) + len(made[stream_id])
                        made[stream_id].append(codes)
                case EndStream(stream_id, end):
                    assert (end.reason, end.num_frames) == (FinishReason.MAX_FRAMES, num_frames[stream_id])
    return [np.stack(codes) for codes in made]
