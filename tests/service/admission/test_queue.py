"""Who of those that wait for a place goes first."""

import asyncio
from collections import Counter
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonorant.service.admission.queue import TYPICAL_UTTERANCE_S, PlaceQueue, Rank
from tests.fakes import FakeClock
from tests.service.harness import eventually

A, B, FLOOD, OTHER = range(1, 5)
waiters = st.lists(st.tuples(st.sampled_from(Rank), st.sampled_from([A, B, OTHER])), min_size=1, max_size=30)


def order_of(waiters: list[tuple[Rank, int]], gone: frozenset[int] = frozenset()) -> list[int]:
    """In which order they get places, by their numbers; those that have `gone` leave before anybody gets one."""

    async def serve() -> list[int]:
        queue, order = PlaceQueue(), list[int]()
        with ExitStack() as inside:
            stacks = [inside.enter_context(ExitStack()) for _ in waiters]
            tickets = [
                stack.enter_context(queue.ticket(rank, caller))
                for stack, (rank, caller) in zip(stacks, waiters, strict=True)
            ]
            for number in gone:
                stacks[number].close()
            waiting = {number: ticket for number, ticket in enumerate(tickets) if number not in gone}
            while waiting:
                first = min(waiting, key=lambda number: queue.num_ahead(waiting[number]))
                queue.served(waiting.pop(first))
                order.append(first)
            assert len(queue) == 0
        return order

    return asyncio.run(serve())


@given(waiters)
def test_ranks_go_in_order_and_each_caller_in_the_order_in_which_they_came(waiters: list[tuple[Rank, int]]) -> None:
    order = order_of(waiters)
    assert sorted(order) == list(range(len(waiters)))
    assert [waiters[number][0] for number in order] == sorted(rank for rank, _ in waiters)
    for kind in set(waiters):
        mine = [number for number in order if waiters[number] == kind]
        assert mine == sorted(mine)


@given(waiters)
def test_in_a_rank_callers_take_turns(waiters: list[tuple[Rank, int]]) -> None:
    """Nobody gets two places more than another caller who still waits."""
    order = order_of(waiters)
    for rank in Rank:
        left = Counter(caller for each, caller in waiters if each is rank)
        got = Counter(dict.fromkeys(left, 0))
        for number in order:
            if waiters[number][0] is rank:
                got[waiters[number][1]] += 1
                left[waiters[number][1]] -= 1
                assert all(got[waiters[number][1]] <= got[other] + 1 for other in left if left[other])


@given(waiters, st.frozensets(st.integers(0, 29)))
def test_who_leaves_changes_nothing_for_the_others(waiters: list[tuple[Rank, int]], gone: frozenset[int]) -> None:
    gone = frozenset(number for number in gone if number < len(waiters))
    assert sorted([*order_of(waiters, gone), *gone]) == list(range(len(waiters)))


async def test_the_first_one_may_try_again_and_again_and_the_next_one_once_it_got_a_place() -> None:
    queue = PlaceQueue()
    with queue.ticket(Rank.NEW, A) as first, queue.ticket(Rank.NEW, B) as second:
        for _ in range(3):
            await asyncio.wait_for(first.may_try.wait(), 60)
            first.may_try.clear()
        assert not second.may_try.is_set()
        queue.served(first)
        assert second.may_try.is_set(), "at once"
    assert len(queue) == 0


async def test_one_that_does_not_try_holds_nobody_up() -> None:
    queue = PlaceQueue()
    with queue.ticket(Rank.NEW, A) as first, queue.ticket(Rank.NEW, B) as second:
        await asyncio.wait_for(second.may_try.wait(), 60)
        assert first.may_try.is_set()


async def test_an_empty_queue_has_no_timer() -> None:
    queue = PlaceQueue()
    with queue.ticket(Rank.NEW, A):
        pass
    await eventually(lambda: queue._timer, None)


async def test_the_wait_is_expected_by_how_quickly_places_were_given() -> None:
    clock = FakeClock()
    queue = PlaceQueue(clock=clock)
    assert queue.expected_wait_s(3, num_places=10) == pytest.approx(TYPICAL_UTTERANCE_S * 4 / 10)
    for _ in range(5):
        with queue.ticket(Rank.NEW, A) as ticket:
            queue.served(ticket)
        clock.now_s += 0.5
    assert queue.expected_wait_s(3, num_places=10) == pytest.approx(0.5 * 4)
    clock.now_s += 9.5  # none since
    assert queue.expected_wait_s(0, num_places=10) == pytest.approx(10 / 4)


async def test_a_newcomer_comes_behind_those_of_a_better_rank_and_whose_turn_is_before_it() -> None:
    queue = PlaceQueue()
    with ExitStack() as inside:
        for _ in range(3):
            inside.enter_context(queue.ticket(Rank.NEW, FLOOD))
        ahead = {
            (rank, caller): queue.num_ahead_of_newcomer(rank, caller) for rank in Rank for caller in (FLOOD, OTHER)
        }
    assert ahead == {
        (Rank.GOES_ON, FLOOD): 0,
        (Rank.GOES_ON, OTHER): 0,
        (Rank.NEW, FLOOD): 3,
        (Rank.NEW, OTHER): 1,  # callers take turns
        (Rank.BACKGROUND, FLOOD): 3,
        (Rank.BACKGROUND, OTHER): 3,
    }


async def test_a_heavy_caller_holds_up_only_others_who_are() -> None:
    queue = PlaceQueue(lambda: {FLOOD, OTHER})
    with queue.ticket(Rank.GOES_ON, FLOOD) as first, queue.ticket(Rank.NEW, A) as other:
        await asyncio.wait_for(other.may_try.wait(), 60)
        assert first.may_try.is_set()
    with queue.ticket(Rank.GOES_ON, FLOOD):
        assert queue.num_ahead_of_newcomer(Rank.NEW, OTHER) == 1
        assert queue.num_ahead_of_newcomer(Rank.NEW, A) == 0
