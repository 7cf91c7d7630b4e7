"""Who takes a step when: in rotation and for so long per turn, once many events have come; else as the loop does it."""

import asyncio
from collections.abc import AsyncIterator
from contextvars import ContextVar, copy_context

import pytest

from sonorant.service.calls.loop_share import PER_TURN_S, Steps

WHO: ContextVar[str] = ContextVar("who", default="")
PER_TURN = 4  # steps


class Calls:
    """Tasks of callers, each of which waits for its event and then takes a step, by a clock that nothing else moves."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.now_s = 0.0
        self.turn = 0
        self.seen: list[tuple[int, str]] = []
        self.steps = Steps(lambda context: context.get(WHO, ""), lambda: self.now_s)
        self._events: list[asyncio.Future[None]] = []

    async def start(self, who: str, num: int = 1, num_steps: int = 1) -> list["asyncio.Task[None]"]:
        context = copy_context()
        context.run(WHO.set, who)
        tasks = [self.loop.create_task(self._call(who, num_steps), context=context.copy()) for _ in range(num)]
        await asyncio.sleep(0)
        return tasks

    async def _call(self, who: str, num_steps: int) -> None:
        self._events.append(event := self.loop.create_future())
        await event
        for _ in range(num_steps):
            self.now_s += PER_TURN_S / PER_TURN
            self.seen.append((self.turn, who))
            await asyncio.sleep(0)

    def let_all_go(self, *, are_many: bool = True) -> None:
        if are_many:
            self.steps.on_many()
        for event in self._events:
            if not event.done():
                event.set_result(None)

    async def count_turns(self, num: int) -> None:
        for self.turn in range(num):
            await asyncio.sleep(0)


@pytest.fixture
async def calls() -> AsyncIterator[Calls]:
    before = asyncio.get_running_loop().call_soon
    made = Calls()
    yield made
    await made.count_turns(100)
    assert asyncio.get_running_loop().call_soon == before, "once nothing waits, the loop is left alone"


async def test_one_step_is_not_behind_all_those_of_another(calls: Calls) -> None:
    await calls.start("flood", 100)
    await calls.start("other")
    calls.let_all_go()
    await calls.count_turns(60)
    assert [who for _, who in calls.seen[:3]] == ["flood", "other", "flood"]
    assert len(calls.seen) == 101


async def test_a_turn_has_so_many_steps(calls: Calls) -> None:
    await calls.start("flood", 100)
    calls.let_all_go()
    await calls.count_turns(60)
    turns = [turn for turn, _ in calls.seen]
    assert len(turns) == 100 and max(map(turns.count, turns)) <= PER_TURN


async def test_all_steps_of_a_call_are_taken_in_turn_not_only_the_first(calls: Calls) -> None:
    await calls.start("flood", 50, num_steps=4)
    await calls.start("other", num_steps=4)
    calls.let_all_go()
    await calls.count_turns(100)
    places = [place for place, (_, who) in enumerate(calls.seen) if who == "other"]
    assert len(calls.seen) == 204 and places[-1] <= 10


async def test_steps_of_one_caller_keep_their_order(calls: Calls) -> None:
    done: list[int] = []

    async def call(number: int) -> None:
        await event
        done.append(number)

    event = calls.loop.create_future()
    context = copy_context()
    context.run(WHO.set, "one")
    tasks = [calls.loop.create_task(call(number), context=context.copy()) for number in range(30)]
    await asyncio.sleep(0)
    calls.steps.on_many()
    event.set_result(None)
    await asyncio.wait(tasks)
    assert done == list(range(30))


async def test_what_is_nobodys_does_not_wait(calls: Calls) -> None:
    await calls.start("flood", 100)
    await calls.start("")
    calls.let_all_go()
    calls.loop.call_soon(lambda: calls.seen.append((calls.turn, "called")))
    await calls.count_turns(2)
    assert {"", "called"} <= {who for _, who in calls.seen}
    assert len(calls.seen) <= 2 * PER_TURN + 2


async def test_what_the_loop_is_asked_to_call_may_be_for_all_and_does_not_wait(calls: Calls) -> None:
    await calls.start("flood", 100)
    calls.let_all_go()
    context = copy_context()
    context.run(WHO.set, "flood")
    calls.loop.call_soon(lambda: calls.seen.append((calls.turn, "for all")), context=context)
    await calls.count_turns(2)
    assert "for all" in [who for _, who in calls.seen]


async def test_a_call_that_is_cancelled_while_its_step_waits_ends(calls: Calls) -> None:
    tasks = await calls.start("flood", 100)
    calls.let_all_go()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert all(task.cancelled() for task in tasks) and not calls.seen


async def test_an_error_is_its_calls_own(calls: Calls) -> None:
    async def fails() -> None:
        await event
        raise ValueError("mine")

    event = calls.loop.create_future()
    context = copy_context()
    context.run(WHO.set, "one")
    task = calls.loop.create_task(fails(), context=context)
    others = await calls.start("flood", 10)
    calls.let_all_go()
    event.set_result(None)
    await asyncio.wait([task, *others])
    assert isinstance(task.exception(), ValueError) and len(calls.seen) == 10


async def test_more_events_while_steps_wait_change_nothing(calls: Calls) -> None:
    await calls.start("flood", 100)
    calls.let_all_go()
    await calls.count_turns(2)
    calls.steps.on_many()
    await calls.start("other")
    calls.let_all_go(are_many=False)
    await calls.count_turns(60)
    assert [who for _, who in calls.seen].index("other") <= 4 * PER_TURN
