"""Nobody takes the last places from those who have none."""

import pytest

from sonorant.service.access.api_keys import Caller
from sonorant.service.access.places import Places
from sonorant.service.errors import LimitReached

ADA, BOB, EVE = Caller("ada"), Caller("bob"), Caller("eve")


def take_all(places: Places, caller: Caller) -> int:
    """As many as the caller gets."""
    for count in range(1000):
        try:
            places.enter(caller)
        except LimitReached:
            return count
    raise AssertionError("no limit")


def test_whoever_is_alone_may_have_all() -> None:
    places = Places("sessions", 20, lambda: 1)
    assert take_all(places, ADA) == places.limit(None) == 20


@pytest.mark.parametrize(("num_callers", "most"), [(2, 15), (3, 15), (100, 15)])
def test_the_last_quarter_is_for_who_has_less_than_a_share(num_callers: int, most: int) -> None:
    places = Places("sessions", 20, lambda: num_callers)
    assert take_all(places, ADA) == places.limit(None) == most
    assert take_all(places, BOB) == max(1, min(5, 20 // num_callers))
    with pytest.raises(LimitReached):
        places.enter(ADA)


def test_a_place_that_is_given_back_goes_to_who_has_few() -> None:
    places = Places("sessions", 8, lambda: 3)
    leaves = [places.enter(ADA) for _ in range(6)]
    assert take_all(places, BOB) == 2
    leaves.pop()()
    with pytest.raises(LimitReached, match=r"kept for others"):
        places.enter(ADA)
    places.enter(EVE)
    with pytest.raises(LimitReached, match="all 8 sessions are taken"):
        places.enter(EVE)


def test_a_key_may_be_for_less() -> None:
    places = Places("uploads", 8, lambda: 1)
    assert places.limit(2) == 2
    places.enter(ADA, 2)
    places.enter(ADA, 2)
    with pytest.raises(LimitReached, match="all 2 uploads of this API key"):
        places.enter(ADA, 2)
    assert take_all(places, BOB) == 6


def test_what_was_begun_elsewhere_comes_in_where_newcomers_wait() -> None:
    places = Places("sessions", 8, lambda: 1)
    caller = Caller("anna")
    for _ in range(8):
        places.enter(caller)
    with pytest.raises(LimitReached):
        places.enter(caller)
    leave = places.enter(caller, resuming=True)
    with pytest.raises(LimitReached):
        places.enter(caller, resuming=True)
    leave()
    places.enter(caller, resuming=True)
