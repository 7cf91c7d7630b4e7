"""Who is let in when: some per turn of the loop, and nobody is behind all of another's calls."""

import asyncio
from contextlib import suppress

import pytest

from sonorant.service.calls import newcomers
from sonorant.service.calls.newcomers import PER_TURN, Newcomers
from sonorant.service.errors import LimitReached

FLOOD, OTHER = "ipv4:10.0.0.1:5", "ipv4:10.0.0.2:5"


class Entrances:
    """What was let in, and in which turn of the loop."""

    def __init__(self) -> None:
        self.turn = 0
        self.seen: list[tuple[int, str]] = []
        self._newcomers = Newcomers()

    async def enter(self, peer: str) -> None:
        await self._newcomers.enter(peer)
        self.seen.append((self.turn, peer))

    async def count_turns(self, num: int) -> None:
        for self.turn in range(num):
            await asyncio.sleep(0)


async def test_so_many_per_turn() -> None:
    entrances, num = Entrances(), 10 * PER_TURN
    tasks = [asyncio.create_task(entrances.enter(FLOOD)) for _ in range(num)]
    await entrances.count_turns(30)
    await asyncio.gather(*tasks)
    turns = [turn for turn, _ in entrances.seen]
    assert len(turns) == num and all(turns.count(turn) <= PER_TURN for turn in turns)


@pytest.mark.parametrize("other", [OTHER, "ipv4:10.0.0.1:6"], ids=["another host", "another connection"])
async def test_one_call_is_not_behind_all_of_another_client(other: str) -> None:
    entrances = Entrances()
    tasks = [asyncio.create_task(entrances.enter(FLOOD)) for _ in range(100)]
    await asyncio.sleep(0)
    await asyncio.gather(entrances.enter(other))
    assert len(entrances.seen) <= 5 * PER_TURN
    await asyncio.gather(*tasks)


async def test_many_connections_of_one_host_are_one_host() -> None:
    entrances = Entrances()
    flood = [f"ipv4:10.0.0.1:{port}" for port in range(100)]
    tasks = [asyncio.create_task(entrances.enter(peer)) for peer in flood]
    await asyncio.sleep(0)
    await asyncio.gather(entrances.enter(OTHER))
    assert len(entrances.seen) <= 5 * PER_TURN
    await asyncio.gather(*tasks)


async def test_who_gave_up_takes_nobodys_turn() -> None:
    entrances = Entrances()
    tasks = [asyncio.create_task(entrances.enter(FLOOD)) for _ in range(100)]
    await asyncio.sleep(0)
    for task in tasks[PER_TURN:-1]:
        task.cancel()
    await asyncio.wait(tasks)
    with suppress(asyncio.CancelledError):
        await asyncio.gather(*tasks)
    assert len(entrances.seen) == PER_TURN + 1
    await entrances.enter(OTHER)  # and nothing is left of them


async def test_the_queue_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newcomers, "MAX_WAITING", 3)
    entrances = Entrances()
    tasks = [asyncio.create_task(entrances.enter(FLOOD)) for _ in range(PER_TURN + 4)]
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(each) for each in done if each is not None] == [LimitReached]
    assert len(entrances.seen) == PER_TURN + 3
