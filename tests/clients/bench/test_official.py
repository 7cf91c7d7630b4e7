"""What is made of a package that returns whole utterances."""

import time
from collections.abc import Sequence

import numpy as np
import pytest

from sonorant.bench.reporting import report
from tests.measure.official import measure


def test_all_audio_arrives_at_the_end() -> None:
    said: list[tuple[str, ...]] = []

    def speak(texts: Sequence[str]) -> tuple[list[np.ndarray], int]:
        said.append(tuple(texts))
        time.sleep(0.05)
        return [np.tile([0.5, -0.5], 2400).astype(np.float32) for _ in texts], 24_000

    row = measure(speak, ("one", "two", "three"), batch=2, seconds=0.2)
    assert row["ok"] == 2 * (len(said) - 1) and row["failed"] == 0, "the first batch does not count"
    assert said[:3] == [("one", "two"), ("one", "two"), ("three", "one")]
    assert 50 <= row["ttfa_ms_p50"] == row["end_to_end_ms_p50"] < 100
    assert row["ttfa_ms_p50"] <= row["audible_ms_p50"] < row["ttfa_ms_p50"] + 20
    assert row["mean_audio_s"] == pytest.approx(0.2)
    assert 2 < row["audio_s_per_s"] <= 2 * 0.2 / 0.05
    assert "closed 2" in report.table([row])
