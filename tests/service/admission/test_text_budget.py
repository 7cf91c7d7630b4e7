"""The budget of text against a plain count over time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonorant.service.admission.text_budget import WINDOW_S, pay
from sonorant.service.errors import LimitReached


@given(st.integers(1, 500), st.lists(st.tuples(st.floats(0, 90), st.integers(1, 500)), max_size=30))
def test_a_bucket_of_a_minutes_text_that_fills_evenly(limit: int, takes: list[tuple[float, int]]) -> None:
    now_s, paid_off_s, free = 100.0, 0.0, float(limit)
    for pause_s, num_chars in takes:
        now_s += pause_s
        free = min(limit, free + limit * pause_s / WINDOW_S)
        try:
            paid_off_s = pay(now_s, paid_off_s, num_chars, limit)
        except LimitReached as error:
            assert num_chars > free
            if num_chars > limit:
                assert error.retry_s is None, "there is no use in trying again"
                continue
            assert error.retry_s is not None
            assert abs(error.retry_s - (num_chars - free) * WINDOW_S / limit) < 1e-4
            now_s += error.retry_s + 1e-6
            paid_off_s = pay(now_s, paid_off_s, num_chars, limit)
            free = 0.0
        else:
            free -= num_chars
            assert free > -1e-3


def test_a_text_longer_than_a_minutes_says_what_to_do() -> None:
    with pytest.raises(LimitReached, match="send less, or shorten the pronunciations"):
        pay(0.0, 0.0, 11, 10)
