"""Arrivals of an open loop: the same for everyone, and as random as a Poisson process is."""

import math
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonorant.bench.arrivals import poisson_arrivals


def pauses(rate_per_s: float, seed: int, count: int) -> list[float]:
    times_s = [0.0, *islice(poisson_arrivals(rate_per_s, seed), count)]
    return [later_s - earlier_s for earlier_s, later_s in pairwise(times_s)]


@given(st.floats(0.1, 1000), st.integers(0, 2**31))
def test_a_seed_gives_the_same_schedule_at_every_rate(rate_per_s: float, seed: int) -> None:
    """The rate stretches time and changes nothing else, so that two rates meet the same bursts."""
    times_s = list(islice(poisson_arrivals(rate_per_s, seed), 50))
    assert times_s == sorted(times_s) and times_s[0] > 0
    assert times_s == pytest.approx([t / rate_per_s for t in islice(poisson_arrivals(1.0, seed), 50)])


def test_other_seeds_give_other_schedules() -> None:
    assert len({next(poisson_arrivals(1.0, seed)) for seed in range(100)}) == 100


@pytest.mark.parametrize("seed", range(3))
def test_pauses_are_exponential(seed: int) -> None:
    """Kolmogorov-Smirnov: a difference that one in ten thousand samples would have by chance."""
    ordered = sorted(pauses(20.0, seed, 4000))
    furthest = max(abs((1 - math.exp(-20 * pause_s)) - n / 4000) for n, pause_s in enumerate(ordered))
    assert furthest < 2.23 / math.sqrt(4000)
