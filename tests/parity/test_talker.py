"""The talker says, code by code, what the official package says (make_goldens.py wrote the goldens)."""

import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sonorant.engine.checkpoint.config import Checkpoint, load_checkpoint
from sonorant.engine.config import EngineConfig
from sonorant.engine.talker.run.runner import TalkerRunner
from tests.engine.talker.driver import prepare, run_alone
from tests.parity.make_goldens import SIZES, voice
from tests.tiny_checkpoint import write_tiny_checkpoint

GOLDENS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "goldens" / "talker.json").read_text())


Speaking = tuple[Checkpoint, TalkerRunner]


@pytest.fixture(scope="module")
def speaking(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str, str], Speaking]:
    """Makes the runner of a task, size and device, once."""

    @functools.cache
    def make(task: str, sizes: str, device: str) -> Speaking:
        folder = write_tiny_checkpoint(tmp_path_factory.mktemp("checkpoint"), task, **SIZES[sizes])
        config = EngineConfig.of(folder, talker_device=device, dtype="float32", num_slots=1, max_context=256)
        checkpoint = load_checkpoint(folder)
        return checkpoint, TalkerRunner(checkpoint, config)

    return make


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("golden", GOLDENS, ids=lambda g: f"{g['task']}-{g['sizes']}-{g['language']}")
def test_greedy_codes_are_the_official_ones(
    golden: dict[str, Any], speaking: Callable[[str, str, str], Speaking], device: str
) -> None:
    checkpoint, runner = speaking(golden["task"], golden["sizes"], device)
    sampling = dataclasses.replace(checkpoint.default_sampling, do_sample=False, subtalker_do_sample=False)
    params = {
        key: golden[key]
        for key in ("speaker", "language", "instruct", "non_streaming_mode", "reference_text")
        if key in golden
    }
    if golden["task"] == "base":
        num_frames = golden["reference_frames"]
        x_vector, codes = voice(
            checkpoint.talker.stack.hidden_size,
            num_frames,
            checkpoint.talker.num_codebooks,
            checkpoint.code_predictor.vocab_size,
        )
        params |= {"x_vector": x_vector, "reference_codes": codes.astype(np.int16) if num_frames else None}
    expected = np.array(golden["codes"])
    utterance = prepare(checkpoint, golden["text"], sampling, len(expected), **params)
    codes = run_alone(runner, checkpoint, utterance, num_pages=16)
    np.testing.assert_array_equal(codes, expected)
