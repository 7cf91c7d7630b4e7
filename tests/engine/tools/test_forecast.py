"""Frames of weights that mean nothing take as long as those of a checkpoint of the same sizes."""

from pathlib import Path
from typing import Any

import pytest

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.config import EngineConfig
from sonorant.engine.cpu.library import library
from sonorant.engine.model.rounded import ROUNDINGS
from sonorant.engine.tools.forecast import forecast
from tests.tiny_checkpoint import write_tiny_checkpoint

pytestmark = pytest.mark.skipif(library() is None, reason="installed without a C compiler")

SIZES: dict[str, Any] = {
    "hidden": 256,
    "intermediate": 256,
    "head_dim": 32,
    "predictor_hidden": 128,
    "text_hidden": 128,
    "decoder_dim": 192,
    "codec_dim": 128,
}


@pytest.mark.parametrize("weights", ROUNDINGS)
def test_more_rows_take_no_less(weights: str, tmp_path: Path) -> None:
    checkpoint = load_checkpoint(write_tiny_checkpoint(tmp_path, **SIZES))
    config = EngineConfig.of(checkpoint.folder, talker_device="cpu", code2wav_device="cpu", talker_weights=weights)
    steps_s, codec_s = forecast(checkpoint, config, ROUNDINGS[weights])
    assert 0 < steps_s[1] <= steps_s[8] < 1
    assert 0 < codec_s < 1
