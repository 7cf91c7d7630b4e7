from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.code2wav.silence import SILENT_PEAK, silent_tail


@given(
    st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=1, max_size=4),
    st.sampled_from([-32768, -SILENT_PEAK - 1, SILENT_PEAK + 1, 32767]),
    st.integers(0, 2),
)
def test_the_tail_is_what_follows_the_last_sound(is_loud: list[list[bool]], sample: int, place: int) -> None:
    """Frames of three samples, the loud ones with one sound in them."""
    samples = np.full((len(is_loud), 5, 3), SILENT_PEAK, np.int16)
    samples[np.array(is_loud), place] = sample
    expected = [next((n for n, loud in enumerate(reversed(row)) if loud), 5) for row in is_loud]
    assert silent_tail(samples.reshape(len(is_loud), 15), 5) == expected


@pytest.mark.parametrize("dtype", [np.int16, np.float32])
def test_floats_are_silent_where_whole_numbers_are(dtype: Any) -> None:
    scale = 1 if dtype == np.int16 else 32768
    samples = np.array([[SILENT_PEAK, 0], [0, -SILENT_PEAK - 1]]) / scale
    assert silent_tail(samples.astype(dtype), 1) == [1, 0]
