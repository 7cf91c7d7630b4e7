"""Runners of the tiny checkpoint, and utterances of many kinds for them."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from sonorant.engine.checkpoint.config import Checkpoint, load_checkpoint
from sonorant.engine.config import EngineConfig
from sonorant.engine.talker.run.runner import TalkerRunner
from tests.engine.talker.driver import Utterance, prepare
from tests.tiny_checkpoint import write_tiny_checkpoint

PAGES_PER_SLOT = 8

TEXTS = ("Hello world.", "The quick brown fox jumps over the lazy dog and speaks slowly.", "Fine!")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return load_checkpoint(write_tiny_checkpoint(tmp_path_factory.mktemp("tiny"), "base"))


def new_runner(
    checkpoint: Checkpoint, device: str, num_slots: int, *, fused: bool, eager: bool = False, hurries: bool = False
) -> TalkerRunner:
    config = EngineConfig.of(
        checkpoint.folder,
        dtype="float32",
        talker_device=device,
        num_slots=num_slots,
        num_pages=num_slots * PAGES_PER_SLOT,
        max_context=PAGES_PER_SLOT * 16,
        enforce_eager=eager,
    )
    return TalkerRunner(checkpoint, config, fused=fused, hurries=hurries)


def utterances(checkpoint: Checkpoint, count: int, num_frames: int) -> list[Utterance]:
    """Greedy and sampled, with and without a reference, short prompts and long ones."""
    rng = np.random.default_rng(0)
    hidden, books = checkpoint.talker.stack.hidden_size, checkpoint.talker.num_codebooks
    made = []
    for i in range(count):
        sampling = dataclasses.replace(checkpoint.default_sampling, seed=i, top_p=0.8 if i % 4 == 1 else 1.0)
        if i % 2 == 0:
            sampling = dataclasses.replace(sampling, do_sample=False, subtalker_do_sample=False)
        params: dict[str, Any] = {"x_vector": rng.standard_normal(hidden, np.float32), "language": "english"}
        if i % 3 == 0:
            params["reference_codes"] = rng.integers(0, 64, (12 + 4 * i, books), np.int16)
            params["reference_text"] = TEXTS[2]
        made.append(prepare(checkpoint, TEXTS[i % len(TEXTS)], sampling, num_frames - i % 3, **params))
    return made
