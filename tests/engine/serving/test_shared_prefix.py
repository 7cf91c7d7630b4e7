"""Cloned voices with real worker processes: an utterance does not compute again what the one before it began with."""

import dataclasses
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from sonorant.engine import EngineConfig, SynthesisParams
from tests.engine.one_engine import start_engine, work_when_idle
from tests.engine.speech import assert_same_speech, say
from tests.tiny_checkpoint import QUICK, write_tiny_checkpoint


@pytest.mark.slow
async def test_two_texts_in_one_voice_share_its_reference_text(tmp_path: Path) -> None:
    model = write_tiny_checkpoint(tmp_path, "base", **QUICK)
    engine = await start_engine(EngineConfig.of(model, num_slots=2, max_context=256, cpu_threads=1))
    try:
        rng = np.random.default_rng(0)
        params = SynthesisParams(
            dataclasses.replace(engine.info.default_sampling, max_frames=12, ignore_eos=True),
            x_vector=rng.standard_normal(engine.info.hidden_size, np.float32),
            reference_codes=rng.integers(0, 64, (40, engine.info.num_codebooks), np.int16),
            reference_text="The quick brown fox jumps over the lazy dog and speaks slowly.",
        )
        heard = []
        works = [(await work_when_idle(engine))["talker"]]
        for text in ("Hello world.", "Today is fine.", "Hello world."):
            heard.append(await say(engine, text, params))
            works.append((await work_when_idle(engine))["talker"])
    finally:
        await engine.close()
    rows = [
        (after.num_shared_rows - before.num_shared_rows, after.num_prompt_rows - before.num_prompt_rows)
        for before, after in pairwise(works)
    ]
    num_rows = rows[0][1]
    assert rows == [(0, num_rows), (32, num_rows - 32), ((num_rows - 1) // 16 * 16, (num_rows - 1) % 16 + 1)]
    assert_same_speech(heard[0].samples, heard[2].samples)
