"""A stream that goes on behind frames made before makes the frames that it would have made without the break."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sonorant.engine.checkpoint.config import Checkpoint, load_checkpoint
from sonorant.engine.config import EngineConfig
from sonorant.engine.talker.run.runner import TalkerRunner
from tests.engine.talker.driver import prepare
from tests.engine.talker.schedule._support import Setup, make
from tests.tiny_checkpoint import QUICK, write_tiny_checkpoint

TEXT = "The quick brown fox jumps over the lazy dog and speaks slowly of the world today."
REFERENCE_TEXT = "Fine!"
LONGEST = 60  # frames known
CODES_AFTER = 4


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Setup:
    folder = write_tiny_checkpoint(tmp_path_factory.mktemp("tiny"), "base", **QUICK)
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


@pytest.mark.parametrize("kind", range(8))
def test_codes_are_equal_behind_every_break(setup: Setup, kind: int) -> None:
    utterance = prepare(setup.checkpoint, TEXT, num_frames=0, **list(kinds(setup.checkpoint))[kind])
    none = np.empty((0, setup.checkpoint.talker.num_codebooks), np.int16)
    (whole,) = make(setup, utterance, [none], [LONGEST + CODES_AFTER])
    breaks = range(1, LONGEST + 1)
    going_on = make(setup, utterance, [whole[:n] for n in breaks], [n + CODES_AFTER for n in breaks])
    for n, codes in zip(breaks, going_on, strict=True):
        np.testing.assert_array_equal(codes, whole[n : n + CODES_AFTER], err_msg=f"behind {n} frames")
