"""Limits hold for all server processes together, whatever these do at the same time."""

import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonorant.service.access.api_keys import Caller
from sonorant.service.admission.ledger import Counted, Ledger
from sonorant.service.admission.permits import Permits
from sonorant.service.errors import LimitReached
from tests.service.admission.racers import LIMIT, Racer, all_at_once, racing

NUM = 8
ADA, BOB = Caller("ada", max_sessions=6, max_text_chars_per_minute=600), Caller("bob")
NUMBERS = st.lists(st.integers(0, 6), min_size=NUM, max_size=NUM)


@pytest.fixture(scope="module")
def raced() -> Iterator[tuple[Ledger, list[Racer]]]:
    ledger = Ledger(NUM)
    with racing(ledger, NUM) as racers:
        yield ledger, racers
    ledger.close()


@settings(deadline=None)
@given(rounds=st.lists(st.tuples(st.sampled_from([ADA, BOB]), NUMBERS, NUMBERS), max_size=4))
def test_eight_processes_at_once_get_what_one_would(
    raced: tuple[Ledger, list[Racer]], rounds: list[tuple[Caller, list[int], list[int]]]
) -> None:
    ledger, racers = raced
    held = {ADA: 0, BOB: 0}
    for caller, takes, gives in rounds:
        got = sum(all_at_once(racers, "take", caller, takes))
        own_limit = LIMIT if caller.max_sessions is None else caller.max_sessions
        assert got == min(sum(takes), own_limit - held[caller], LIMIT - sum(held.values()))
        held[caller] += got
        if len({who for who, num in held.items() if num}) == 1:  # else whose permits are given back is left open
            held[caller] -= sum(all_at_once(racers, "give", caller, gives))
        assert ledger.total(Counted.SESSIONS) == sum(held.values())
    all_at_once(racers, "give", ADA, [LIMIT] * NUM)
    assert ledger.total(Counted.SESSIONS) == 0


def test_text_of_eight_processes_at_once_is_that_of_one(raced: tuple[Ledger, list[Racer]]) -> None:
    began_s = time.monotonic()
    got = sum(all_at_once(raced[1], "text", ADA, [200] * NUM))
    assert 600 <= got <= 600 + 10 * (time.monotonic() - began_s) + 1


def test_a_process_that_is_killed_gives_all_back_and_blocks_nobody() -> None:
    ledger = Ledger(NUM)
    with racing(ledger, NUM) as racers:
        assert sum(all_at_once(racers, "take", BOB, [1] * NUM)) == NUM
        for number, victim in enumerate(racers[:4]):
            alive = racers[number:]
            for racer in alive:
                racer.tell("churn", BOB, 200)
            victim.kill()  # in the middle of it
            ledger.clear(number)
            assert all(racer.answer() == 200 for racer in alive[1:])
            assert ledger.total(Counted.SESSIONS) == NUM - (number + 1)
        assert sum(all_at_once(racers[4:], "take", BOB, [10] * 4)) == LIMIT - 4
    ledger.close()


def test_a_process_has_what_the_one_before_it_left_behind_no_more() -> None:
    ledger = Ledger(2)
    first, second = (Permits(Counted.SESSIONS, 10, lambda: 1, ledger.of_process(number)) for number in range(2))
    for _ in range(3):
        first.take(ADA, 6)
        second.take(ADA, 6)
    with pytest.raises(LimitReached, match="all 6 sessions of this API key"):
        second.take(ADA, 6)
    ledger.clear(0)
    again = Permits(Counted.SESSIONS, 10, lambda: 1, ledger.of_process(0))
    for _ in range(3):
        again.take(ADA, 6)
    with pytest.raises(LimitReached):
        again.take(ADA, 6)
    ledger.close()


def test_callers_that_have_nothing_make_room_for_others_and_text_is_not_forgotten_before() -> None:
    ledger = Ledger(1, num_rows=4)
    permits = Permits(Counted.UPLOADS, 10, lambda: 1, ledger)
    soon_s = time.monotonic() + 3600
    ledger.charge(ADA.number, lambda now_s, paid_off_s: soon_s)
    held = [permits.take(Caller(name)) for name in ("eve", "mia")]
    with pytest.raises(LimitReached, match="too many callers"):
        permits.take(BOB)
    for permit in held:
        permit.give_back()
        permit.give_back()  # does no harm
    with permits.take(BOB):
        assert ledger.total(Counted.UPLOADS) == 1
    seen: list[float] = []
    ledger.charge(ADA.number, lambda now_s, paid_off_s: seen.append(paid_off_s) or 0.0)
    assert seen == [soon_s]
    ledger.close()
