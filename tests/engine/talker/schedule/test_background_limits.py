"""Background streams never have more than half of the slots."""

import pytest

from sonorant.engine.talker.schedule.background_limits import (
    MOST_BACKGROUND_STREAMS,
    MOST_BACKGROUND_STREAMS_ON_CPU,
    BackgroundLimits,
)


@pytest.mark.parametrize(
    ("num_slots", "on_cuda", "most_streams"),
    [
        (1, True, 1),
        (8, True, 4),
        (2048, True, MOST_BACKGROUND_STREAMS),
        (2, False, 1),
        (32, False, MOST_BACKGROUND_STREAMS_ON_CPU),
    ],
)
def test_slots(num_slots: int, on_cuda: bool, most_streams: int) -> None:
    assert BackgroundLimits.of(num_slots, on_cuda=on_cuda).most_streams == most_streams


def test_on_the_cpu_a_step_has_no_batch_rows_beside_interactive_ones() -> None:
    assert BackgroundLimits.of(32, on_cuda=False).most_rows == 0
