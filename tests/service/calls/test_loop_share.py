"""Who works when: so much per turn of the loop, of all callers in rotation, and what was too much is paid back."""

import asyncio
import gc
from collections import Counter
from contextlib import suppress
from contextvars import ContextVar

import pytest

from sonorant.service.calls.loop_share import PER_TURN_S, LoopShare


class Works:
    """Pieces of work, each of which takes as long as it is told, by a clock that nothing else moves."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.turn = 0
        self.seen: list[tuple[int, str]] = []
        self.share = LoopShare(lambda: self.now_s)

    def work(self, what: str, takes_s: float) -> str:
        self.seen.append((self.turn, what))
        self.now_s += takes_s
        return what

    async def do(self, who: str, takes_s: float = 0.6 * PER_TURN_S) -> str:
        return await self.share.of(who).do(self.work, who, takes_s)

    def start(self, who: str, num: int, takes_s: float = 0.6 * PER_TURN_S) -> list["asyncio.Task[str]"]:
        return [asyncio.create_task(self.do(who, takes_s)) for _ in range(num)]

    async def count_turns(self, num: int) -> None:
        for self.turn in range(num):
            await asyncio.sleep(0)


async def test_work_is_done_at_once_while_there_is_time_for_it() -> None:
    works = Works()
    begun = [works.share.of("a").do(works.work, "a", 0.4 * PER_TURN_S) for _ in range(3)]
    for each in begun:
        with pytest.raises(StopIteration) as done:
            each.send(None)
        assert done.value.value == "a"
    assert len(works.seen) == 3


async def test_over_many_turns_no_more_is_done_than_there_is_time_for() -> None:
    works = Works()
    tasks = works.start("a", 40)
    await works.count_turns(30)
    assert await asyncio.gather(*tasks) == ["a"] * 40
    by_turn = Counter(turn for turn, _ in works.seen)
    assert max(by_turn.values()) == 2  # the second one began when not all was used
    assert 23 <= max(by_turn) <= 26  # 40 x 0.6 turns


async def test_many_small_pieces_wait_for_few_turns() -> None:
    works = Works()
    tasks = works.start("a", 1000, 0.01 * PER_TURN_S)
    await works.count_turns(15)
    assert len(works.seen) == 1000
    await asyncio.gather(*tasks)


async def test_callers_take_turns() -> None:
    works = Works()
    tasks = works.start("a", 10)
    await asyncio.sleep(0)
    tasks += works.start("b", 3)
    await asyncio.gather(*tasks)
    assert "babab" in "".join(who for _, who in works.seen)


async def test_what_took_too_long_is_followed_by_turns_without_work() -> None:
    works = Works()
    tasks = works.start("a", 1, 5 * PER_TURN_S) + works.start("b", 1)
    await works.count_turns(10)
    (first, _), (second, _) = works.seen
    assert second - first == 5
    await asyncio.gather(*tasks)


async def test_who_gave_up_is_not_worked_for() -> None:
    works = Works()
    tasks = works.start("a", 10)
    await asyncio.sleep(0)
    for task in tasks[2:9]:
        task.cancel()
    await asyncio.wait(tasks)
    assert len(works.seen) == 3
    assert [task.cancelled() for task in tasks] == [False] * 2 + [True] * 7 + [False]


async def test_what_is_posted_is_done_in_its_turn_in_the_context_it_came_from() -> None:
    works, told = Works(), ContextVar("told", default="")
    part = works.share.of("a")
    seen: list[str] = []
    told.set("first")
    part.post(lambda: seen.append(told.get()))
    told.set("second")
    await part.do(lambda: seen.append(told.get()))
    assert seen == ["first", "second"]


async def test_an_error_reaches_who_asked_ends_nobody_elses_work_and_leaves_no_cycle() -> None:
    works = Works()

    def fail() -> None:
        works.now_s += PER_TURN_S
        raise ValueError("no")

    async def ask() -> str:
        try:
            await works.share.of("a").do(fail)
        except ValueError as error:
            return str(error)
        raise AssertionError("nothing was raised")

    gc.collect()
    gc.disable()
    try:
        tasks = [asyncio.create_task(ask()) for _ in range(5)] + works.start("b", 1)
        assert await asyncio.gather(*tasks) == ["no"] * 5 + ["b"]
        del tasks
        await asyncio.sleep(0)
        # Not isinstance, which asks proxies for their class: torch has one that warns then.
        assert not any(type(each) is ValueError and str(each) == "no" for each in gc.get_objects())
    finally:
        gc.enable()


async def test_a_posted_error_is_told_and_the_rest_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    works = Works()

    def fail() -> None:
        raise ValueError("no")

    works.share.of("a").post(fail)
    with suppress(ValueError):
        assert await asyncio.gather(*works.start("b", 3)) == ["b"] * 3
    assert "ValueError: no" in caplog.text
