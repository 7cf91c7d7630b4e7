"""Who is let in when: some per turn of the loop, nobody behind all of another's calls, the known before the new."""

import asyncio
from contextlib import suppress

import pytest

from sonorant.service.calls import call_queue
from sonorant.service.calls.call_queue import PER_TURN, CallQueue, Entered, client_of, host_of
from sonorant.service.calls.resets import EARLY_S, MOST, PER_S
from sonorant.service.errors import LimitReached

FLOOD, OTHER = "ipv4:10.0.0.1:5", "ipv4:10.0.0.2:5"


class Entrances:
    """What was let in, and in which turn of the loop."""

    def __init__(self) -> None:
        self.turn = 0
        self.now_s = 1000.0
        self.seen: list[tuple[int, str]] = []
        self._call_queue = CallQueue(lambda: self.now_s)

    async def enter(self, peer: str) -> Entered:
        entered = await self._call_queue.enter(host_of(peer), peer)
        self.seen.append((self.turn, peer))
        return entered

    async def know(self, peer: str) -> None:
        """A call was of use."""
        (await self.enter(peer)).end(ok=True, cancelled=False)
        self.seen.clear()

    async def reset(self, num: int, connection: int | None = None) -> None:
        """Calls that are cancelled at once, each on a connection of its own, or all on one."""
        for port in range(num):
            (await self.enter(f"ipv4:10.0.0.1:{1000 + port if connection is None else connection}")).end(
                ok=False, cancelled=True
            )
        self.seen.clear()

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


@pytest.mark.parametrize("other", [OTHER, "ipv4:10.0.0.1:6"], ids=["another host", "a known connection"])
async def test_one_call_is_not_behind_all_of_another_client(other: str) -> None:
    entrances = Entrances()
    await entrances.know(other)
    tasks = [asyncio.create_task(entrances.enter(FLOOD)) for _ in range(10 * PER_TURN)]
    await asyncio.sleep(0)
    await asyncio.gather(entrances.enter(other))
    assert len(entrances.seen) <= 5 * PER_TURN
    await asyncio.gather(*tasks)


@pytest.mark.parametrize("other", [OTHER, FLOOD], ids=["another host", "a known connection"])
async def test_many_new_connections_of_one_host_are_one(other: str) -> None:
    entrances = Entrances()
    await entrances.know(other)
    flood = [f"ipv4:10.0.0.1:{port}" for port in range(1000, 1000 + 10 * PER_TURN)]
    tasks = [asyncio.create_task(entrances.enter(peer)) for peer in flood]
    await asyncio.sleep(0)
    await asyncio.gather(entrances.enter(other))
    assert len(entrances.seen) <= 5 * PER_TURN
    await asyncio.gather(*tasks)


async def test_who_gave_up_takes_nobodys_turn() -> None:
    entrances = Entrances()
    tasks = [asyncio.create_task(entrances.enter(FLOOD)) for _ in range(10 * PER_TURN)]
    await asyncio.sleep(0)
    for task in tasks[PER_TURN:-1]:
        task.cancel()
    await asyncio.wait(tasks)
    with suppress(asyncio.CancelledError):
        await asyncio.gather(*tasks)
    assert len(entrances.seen) == PER_TURN + 1
    await entrances.enter(OTHER)  # and nothing is left of them


@pytest.mark.parametrize("connection", [None, 7], ids=["new connections", "a known connection"])
async def test_who_cancels_calls_at_once_waits_for_its_past_and_nobody_else_does(connection: int | None) -> None:
    entrances = Entrances()
    again = f"ipv4:10.0.0.1:{connection or 999}"
    if connection is not None:
        await entrances.know(again)
    await entrances.know("ipv4:10.0.0.1:6")
    await entrances.reset(int(MOST) + 1, connection)
    held = [asyncio.create_task(entrances.enter(again)) for _ in range(3)]
    for other in [OTHER, "ipv4:10.0.0.1:6"] * 20:
        await entrances.enter(other)
    assert again not in [peer for _, peer in entrances.seen]
    entrances.now_s += 1 / PER_S
    await asyncio.wait(held, return_when=asyncio.FIRST_COMPLETED)
    for task in held:
        task.cancel()
    await asyncio.wait(held)


async def test_calls_that_give_up_while_they_are_held_are_no_past() -> None:
    entrances = Entrances()
    await entrances.reset(int(MOST) + 1)
    for _ in range(1000):
        task = asyncio.create_task(entrances.enter(FLOOD))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
    entrances.now_s += 1 / PER_S
    await entrances.enter(FLOOD)


async def test_a_call_that_is_cancelled_late_was_of_use() -> None:
    entrances = Entrances()
    calls = [await entrances.enter(FLOOD) for _ in range(2 * int(MOST))]
    entrances.now_s += EARLY_S
    for call in calls:
        call.end(ok=False, cancelled=True)
    entrances.seen.clear()
    await entrances.enter(FLOOD)
    assert len(entrances.seen) == 1


async def test_no_more_calls_are_held_back_than_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_queue, "MAX_WAITING", 3)
    entrances = Entrances()
    await entrances.reset(int(MOST) + 1)
    held = [asyncio.create_task(entrances.enter(FLOOD)) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(LimitReached):
        await entrances.enter(FLOOD)
    await entrances.enter(OTHER)
    for task in held:
        task.cancel()
    await asyncio.wait(held)


async def test_of_a_full_queue_the_last_of_the_longest_line_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_queue, "MAX_WAITING", 3)
    entrances = Entrances()
    tasks = [asyncio.create_task(entrances.enter(peer)) for peer in [FLOOD] * (PER_TURN + 3) + [OTHER]]
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(each) for each in done] == [Entered] * (PER_TURN + 2) + [LimitReached, Entered]


async def test_only_so_many_connections_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_queue, "MAX_KNOWN", 3)
    entrances = Entrances()
    for port in (1, 2, 3, 1, 4):
        await entrances.know(f"ipv4:10.0.0.1:{port}")
    assert [(await entrances.enter(f"ipv4:10.0.0.1:{port}")).line != call_queue.NEW for port in (1, 2, 3, 4)] == [
        True, False, True, True,
    ]  # fmt: skip


def test_of_the_name_of_a_client_the_end_counts_which_a_proxy_wrote() -> None:
    names = [client_of(FLOOD, f"{forged}, {address}") for forged in "ab" for address in ("10.1.1.1", "10.1.1.2")]
    assert len({*names, client_of(FLOOD, "")}) == 5
    assert client_of(FLOOD, "a" * 8000 + ", 10.1.1.1") == client_of(FLOOD, "a" * 9000 + ", 10.1.1.1")
