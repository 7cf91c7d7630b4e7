from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonorant.engine.code2wav.schedule.batcher import Batcher
from sonorant.engine.code2wav.schedule.silence import SILENT_PEAK, silent_tail
from sonorant.engine.config import EngineConfig
from sonorant.engine.ipc.messages import SilentStream
from tests.fakes import CONTEXT, begin_stream, frame_batch, published_checkpoint


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


@pytest.mark.parametrize(("max_silent_frames", "reports"), [(5, [5]), (0, [])])
def test_a_stream_that_stays_silent_is_reported_once(max_silent_frames: int, reports: list[int]) -> None:
    """Its reference, which nobody hears, is silent, and so is all but its fourth frame."""
    config = EngineConfig.of(
        published_checkpoint().folder, num_slots=1, chunk_ramp=(1,), runaway_silent_frames=max_silent_frames
    )
    batcher = Batcher(config, num_slots=1, frame_s=0.08, context=CONTEXT, pass_sizes=[1])
    batcher.on_record(begin_stream(1, np.zeros((8, 16), np.int16)))
    assert batcher.apply_unheard(batcher.next_batch()) == []
    found = []
    for index in range(16):
        batcher.on_record(frame_batch([1], [index], np.zeros((1, 16), np.int16)))
        records = batcher.apply(batcher.next_batch(), np.full((1, 1), 1000 if index == 3 else 0, np.int16))
        found += [record.num_frames for record in records if isinstance(record, SilentStream)]
    assert found == reports
