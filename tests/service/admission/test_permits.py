"""Nobody takes the last permits from those who have none."""

from collections.abc import Callable

import pytest

from sonorant.service.access.api_keys import ANYONE, HOSTS, Caller, anyone_at
from sonorant.service.admission.ledger import Counted, Ledger
from sonorant.service.admission.permits import Permits
from sonorant.service.errors import LimitReached

ADA, BOB, EVE = Caller("ada"), Caller("bob"), Caller("eve")


def of(kind: str, limit: int, num_callers: Callable[[], int]) -> Permits:
    return Permits(Counted[kind.upper()], limit, num_callers, Ledger())


def take_all(permits: Permits, caller: Caller) -> int:
    """As many as the caller gets."""
    for count in range(1000):
        try:
            permits.take(caller)
        except LimitReached:
            return count
    raise AssertionError("no limit")


def test_whoever_is_alone_may_have_all() -> None:
    permits = of("sessions", 20, lambda: 1)
    assert take_all(permits, ADA) == permits.limit(ADA, None) == 20


@pytest.mark.parametrize(("num_callers", "most"), [(2, 15), (3, 15), (100, 15)])
def test_the_last_quarter_is_for_who_has_less_than_a_share(num_callers: int, most: int) -> None:
    permits = of("sessions", 20, lambda: num_callers)
    assert take_all(permits, ADA) == permits.limit(ADA, None) == most
    assert take_all(permits, BOB) == max(1, min(5, 20 // num_callers))
    with pytest.raises(LimitReached):
        permits.take(ADA)


def test_a_permit_that_is_given_back_goes_to_who_has_few() -> None:
    permits = of("sessions", 8, lambda: 3)
    held = [permits.take(ADA) for _ in range(6)]
    assert take_all(permits, BOB) == 2
    held.pop().give_back()
    with pytest.raises(LimitReached, match=r"kept for others"):
        permits.take(ADA)
    permits.take(EVE)
    with pytest.raises(LimitReached, match="all 8 sessions are taken"):
        permits.take(EVE)


def test_a_key_may_be_for_less() -> None:
    permits = of("uploads", 8, lambda: 1)
    assert permits.limit(ADA, 2) == 2
    permits.take(ADA, 2)
    permits.take(ADA, 2)
    with pytest.raises(LimitReached, match="all 2 uploads of this API key"):
        permits.take(ADA, 2)
    assert take_all(permits, BOB) == 6


def test_what_was_begun_elsewhere_comes_in_where_newcomers_wait() -> None:
    permits = of("sessions", 8, lambda: 1)
    caller = Caller("anna")
    for _ in range(8):
        permits.take(caller)
    with pytest.raises(LimitReached):
        permits.take(caller)
    permit = permits.take(caller, resuming=True)
    with pytest.raises(LimitReached):
        permits.take(caller, resuming=True)
    permit.give_back()
    permits.take(caller, resuming=True)


def test_who_has_many_and_says_that_they_resume_leaves_half_as_many_to_others() -> None:
    permits = of("sessions", 16, lambda: HOSTS)
    flood, other = anyone_at("ipv4:10.0.0.1:5001"), anyone_at("ipv4:10.0.0.2:5001")
    for _ in range(14):
        permits.take(flood, resuming=True)
    with pytest.raises(LimitReached, match="14 of them by this address"):
        permits.take(flood, resuming=True)
    assert take_all(permits, other) == 2
    permits.take(anyone_at("ipv4:10.0.0.3:5001"), resuming=True)  # the reserve is still there


def test_without_keys_one_address_leaves_the_last_quarter_to_others() -> None:
    permits = of("sessions", 16, lambda: HOSTS)
    flood, other = anyone_at("ipv4:10.0.0.1:5001"), anyone_at("ipv6:[fd00::2]:5001")
    assert take_all(permits, flood) == permits.limit(flood, None) == 12
    with pytest.raises(LimitReached, match="12 of them by this address"):
        permits.take(anyone_at("ipv4:10.0.0.1:5002"))  # another connection of it
    assert take_all(permits, other) == 2


@pytest.mark.parametrize("peer", ["ipv4:127.0.0.1:5001", "ipv6:[::1]:5001", "unix:/run/speech"])
def test_whoever_is_on_this_machine_may_have_all(peer: str) -> None:
    """A proxy or gateway in front, which all that come through it would share."""
    permits = of("sessions", 16, lambda: HOSTS)
    assert anyone_at(peer) == ANYONE
    assert take_all(permits, anyone_at(peer)) == permits.limit(ANYONE, None) == 16
