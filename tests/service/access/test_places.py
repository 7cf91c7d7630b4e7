"""Nobody takes the last places from those who have none."""

import pytest

from sonorant.service.access.api_keys import ANYONE, HOSTS, Caller, anyone_at
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
    assert take_all(places, ADA) == places.limit(ADA, None) == 20


@pytest.mark.parametrize(("num_callers", "most"), [(2, 15), (3, 15), (100, 15)])
def test_the_last_quarter_is_for_who_has_less_than_a_share(num_callers: int, most: int) -> None:
    places = Places("sessions", 20, lambda: num_callers)
    assert take_all(places, ADA) == places.limit(ADA, None) == most
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
    assert places.limit(ADA, 2) == 2
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


def test_who_has_many_and_says_that_they_resume_leaves_half_as_many_to_others() -> None:
    places = Places("sessions", 16, lambda: HOSTS)
    flood, other = anyone_at("ipv4:10.0.0.1:5001"), anyone_at("ipv4:10.0.0.2:5001")
    for _ in range(14):
        places.enter(flood, resuming=True)
    with pytest.raises(LimitReached, match="14 of them by this address"):
        places.enter(flood, resuming=True)
    assert take_all(places, other) == 2
    places.enter(anyone_at("ipv4:10.0.0.3:5001"), resuming=True)  # the reserve is still there


def test_without_keys_one_address_leaves_the_last_quarter_to_others() -> None:
    places = Places("sessions", 16, lambda: HOSTS)
    flood, other = anyone_at("ipv4:10.0.0.1:5001"), anyone_at("ipv6:[fd00::2]:5001")
    assert take_all(places, flood) == places.limit(flood, None) == 12
    with pytest.raises(LimitReached, match="12 of them by this address"):
        places.enter(anyone_at("ipv4:10.0.0.1:5002"))  # another connection of it
    assert take_all(places, other) == 2


@pytest.mark.parametrize("peer", ["ipv4:127.0.0.1:5001", "ipv6:[::1]:5001", "unix:/run/speech"])
def test_whoever_is_on_this_machine_may_have_all(peer: str) -> None:
    """A proxy or gateway in front, which all that come through it would share."""
    places = Places("sessions", 16, lambda: HOSTS)
    assert anyone_at(peer) == ANYONE
    assert take_all(places, anyone_at(peer)) == places.limit(ANYONE, None) == 16
