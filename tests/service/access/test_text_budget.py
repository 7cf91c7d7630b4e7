"""The budget of text against a plain count over time."""

from hypothesis import given
from hypothesis import strategies as st

from sonorant.service.access.api_keys import Caller
from sonorant.service.access.text_budget import WINDOW_S, TextBudget
from sonorant.service.errors import LimitReached


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@given(st.integers(1, 500), st.lists(st.tuples(st.floats(0, 90), st.integers(1, 500)), max_size=30))
def test_a_bucket_of_a_minutes_text_that_fills_evenly(limit: int, takes: list[tuple[float, int]]) -> None:
    clock, caller = Clock(), Caller("ada", max_text_chars_per_minute=limit)
    budget, free = TextBudget(clock), float(limit)
    for pause_s, num_chars in takes:
        clock.now_s += pause_s
        free = min(limit, free + limit * pause_s / WINDOW_S)
        try:
            budget.take(caller, num_chars)
        except LimitReached as error:
            assert num_chars > free
            if num_chars > limit:
                assert error.retry_s is None, "there is no use in trying again"
                continue
            assert error.retry_s is not None
            assert abs(error.retry_s - (num_chars - free) * WINDOW_S / limit) < 1e-4
            clock.now_s += error.retry_s + 1e-6
            budget.take(caller, num_chars)
            free = 0.0
        else:
            free -= num_chars
            assert free > -1e-3


def test_callers_do_not_share_and_those_who_paid_are_forgotten() -> None:
    clock = Clock()
    budget = TextBudget(clock)
    for number in range(100):
        budget.take(Caller(f"caller {number}", max_text_chars_per_minute=10), 10)
        clock.now_s += 1
    assert len(budget._paid_off_s) == WINDOW_S
    budget.take(Caller("nobody"), 10**9)
