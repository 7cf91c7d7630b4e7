"""Heads that follow the speech are found in layers where one was trained to, in the built-in checkpoints; else none."""

from pathlib import Path

import numpy as np
import pytest

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.checkpoint.folders import BUILTIN_VOICE_DIR, resolve_model
from sonorant.engine.config import EngineConfig
from sonorant.engine.model.alignment import path_shares
from sonorant.engine.talker.run.runner import TalkerRunner
from sonorant.engine.types import Float32Array
from sonorant.training.talker.losses import GUIDED_LAYERS
from tests.tiny_checkpoint import write_tiny_checkpoint

NUM_FRAMES, NUM_TOKENS = 40, 12


def runner_of(model: Path, **settings: int) -> TalkerRunner:
    config = EngineConfig.of(model, talker_device="cpu", num_slots=1, **settings)
    return TalkerRunner(load_checkpoint(model), config, finds_alignment=True)


@pytest.mark.parametrize("model", ["builtin_voice", "builtin_base"])
def test_the_trained_heads_are_found(model: str) -> None:
    head = runner_of(resolve_model(model)).alignment_head
    # One head of such a layer was trained to; others that share its keys may follow even better.
    assert head is not None and head.layer in GUIDED_LAYERS and head.share > 0.75


def test_none_in_random_weights(tmp_path: Path) -> None:
    runner = runner_of(write_tiny_checkpoint(tmp_path, "custom_voice"))
    assert runner.alignment_head is None and runner.text_logits is None


def test_none_without_room_for_a_sentence() -> None:
    assert runner_of(BUILTIN_VOICE_DIR, num_pages=2, max_context=32).alignment_head is None


def attention(frames: list[int], weight: float) -> Float32Array:
    rest = (1 - weight) / (NUM_TOKENS - 1)
    rows = np.full((len(frames), NUM_TOKENS), rest, np.float32)
    rows[np.arange(len(frames)), frames] = weight
    return rows


def test_a_head_that_follows_has_its_share_and_others_have_none() -> None:
    follows = attention([frame * NUM_TOKENS // NUM_FRAMES for frame in range(NUM_FRAMES)], 0.9)
    rests = attention([0] * NUM_FRAMES, 0.9)
    backwards = follows[::-1]
    looks_anywhere = np.full((NUM_FRAMES, NUM_TOKENS), 1 / NUM_TOKENS, np.float32)
    per_frame, per_token = path_shares(np.stack([follows, rests, backwards, looks_anywhere]))
    assert per_token[0] == pytest.approx(0.9, abs=0.01) and per_frame[0] == pytest.approx(0.9, abs=0.01)
    assert per_frame[1] > 0.7 and per_token[1] < 0.3, "much attention, but to one token"
    assert max(per_token[2:]) < 0.3
