"""After any deaths: innocent streams go on, and one that kills workers is found and nobody else is blamed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonorant.engine.workers.judge import Suspects


def may_go_on(suspects: Suspects, stream: int) -> bool:
    return not any(stream in group for group in suspects.held)


def test_after_the_first_death_all_that_were_heard_go_on_at_once_and_the_others_one_by_one() -> None:
    suspects = Suspects()
    verdict = suspects.on_death([1, 2, 3, 4, 5], was_heard=lambda stream: stream <= 3)
    assert not verdict.culprit and not verdict.is_narrower
    assert [may_go_on(suspects, stream) for stream in (1, 2, 3, 4, 5)] == [True, True, True, False, False]
    assert not suspects.acquit([1, 2])
    assert suspects.acquit([3])
    assert [may_go_on(suspects, stream) for stream in (4, 5)] == [True, False]
    assert suspects.acquit([4]) and may_go_on(suspects, 5)


def test_one_that_is_alive_in_two_deaths_before_it_is_heard_is_the_culprit() -> None:
    suspects = Suspects()
    suspects.on_death([1, 2], was_heard=lambda stream: stream == 1)
    suspects.acquit([1])
    verdict = suspects.on_death([1, 2], was_heard=lambda stream: stream == 1)
    assert (verdict.culprit, verdict.is_narrower) == (2, True)
    assert may_go_on(suspects, 1) and may_go_on(suspects, 2), "whoever comes after it is free"


def test_streams_that_have_nothing_to_go_on_with_hold_nobody_up() -> None:
    suspects = Suspects()
    suspects.on_death([1, 2, 3], was_heard=lambda stream: stream == 1)
    suspects.acquit([2])
    assert not may_go_on(suspects, 3)
    suspects.acquit([1])
    assert may_go_on(suspects, 3)


@pytest.mark.parametrize("count", [1, 2, 8, 500])
def test_two_deaths_of_which_none_is_guilty_blame_nobody_of_several(count: int) -> None:
    suspects = Suspects()
    live = list(range(1, count + 1))
    suspects.on_death(live, was_heard=lambda stream: True)
    suspects.acquit(live)
    verdict = suspects.on_death(live, was_heard=lambda stream: True)
    assert not verdict.culprit
    assert all(may_go_on(suspects, stream) for stream in live)


@given(st.integers(1, 40), st.data())
def test_whoever_kills_as_soon_as_it_goes_on_is_found_and_nobody_else_is(count: int, data: st.DataObject) -> None:
    guilty = data.draw(st.integers(1, count))
    num_heard = data.draw(st.integers(0, count))
    suspects, open_streams, num_deaths = Suspects(), set(range(1, count + 1)), 0
    running = set(open_streams)
    while guilty in open_streams:
        if guilty in running or not running:
            num_deaths += 1
            verdict = suspects.on_death(sorted(running), was_heard=lambda stream: stream <= num_heard)
            running.clear()
            if verdict.culprit:
                assert verdict.culprit == guilty
                open_streams.discard(guilty)
        else:
            suspects.acquit(running)
        running |= {stream for stream in open_streams if may_go_on(suspects, stream)}
    assert num_deaths <= 3 + count.bit_length()
    while running != open_streams:
        suspects.acquit(running)
        running |= {stream for stream in open_streams if may_go_on(suspects, stream)}
