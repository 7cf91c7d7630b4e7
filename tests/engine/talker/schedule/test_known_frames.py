"""A stream that goes on behind frames made before makes the frames that it would have made without the break."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sonorant.engine.checkpoint.config import Checkpoint, load_checkpoint
from sonorant.engine.config import EngineConfig
from sonorant.engine.ipc.messages import EndStream, FrameBatch, OpenStream
from sonorant.engine.talker.run.runner import TalkerRunner
from sonorant.engine.talker.schedule.scheduler import Scheduler
from sonorant.engine.types import FinishReason, Int16Array
from tests.engine.talker.driver import Utterance, prepare
from tests.tiny_checkpoint import write_tiny_checkpoint

TEXT = "The quick brown fox jumps over the lazy dog and speaks slowly of the world today."
REFERENCE_TEXT = "Fine!"
LONGEST = 60  # frames known
CODES_AFTER = 4


@dataclass(frozen=True)
class Setup:
    checkpoint: Checkpoint
    config: EngineConfig
    runner: TalkerRunner


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Setup:
    folder = write_tiny_checkpoint(tmp_path_factory.mktemp("tiny"), "base")
    config = EngineConfig.of(Path(folder), talker_device="cpu", num_slots=8, max_context=192)
    checkpoint = load_checkpoint(folder)
    return Setup(checkpoint, config, TalkerRunner(checkpoint, config))


def kinds(checkpoint: Checkpoint) -> Iterator[Any]:
    """Both layouts, greedy and sampled, clones with and without their transcript."""
    rng = np.random.default_rng(0)
    voice = {"x_vector": rng.standard_normal(checkpoint.talker.stack.hidden_size, np.float32), "language": "english"}
    codes = rng.integers(0, 64, (21, checkpoint.talker.num_codebooks), np.int16)
    for whole_text in (False, True):
        for is_sampled in (False, True):
            for transcript in (False, True):
                sampling = dataclasses.replace(
                    checkpoint.default_sampling,
                    do_sample=is_sampled,
                    subtalker_do_sample=is_sampled,
                    seed=11,
                    repetition_penalty=1.3,  # which must see the frames made before
                    ignore_eos=True,
                )
                reference = {"reference_codes": codes, "reference_text": REFERENCE_TEXT} if transcript else {}
                yield {"sampling": sampling, "non_streaming_mode": whole_text, **voice, **reference}


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


@pytest.mark.parametrize("kind", range(8))
def test_codes_are_equal_behind_every_break(setup: Setup, kind: int) -> None:
    utterance = prepare(setup.checkpoint, TEXT, num_frames=0, **list(kinds(setup.checkpoint))[kind])
    none = np.empty((0, setup.checkpoint.talker.num_codebooks), np.int16)
    (whole,) = make(setup, utterance, [none], [LONGEST + CODES_AFTER])
    breaks = range(1, LONGEST + 1)
    going_on = make(setup, utterance, [whole[:n] for n in breaks], [n + CODES_AFTER for n in breaks])
    for n, codes in zip(breaks, going_on, strict=True):
        np.testing.assert_array_equal(codes, whole[n : n + CODES_AFTER], err_msg=f"behind {n} frames")
