"""Who may read when: so many messages of all calls in a turn of the event loop, and of all callers in rotation."""

import asyncio

from sonorant.service.calls.reading import PER_TURN, Reading


class Readers:
    def __init__(self) -> None:
        self.seen: list[str] = []
        self.reading = Reading()

    async def read(self, who: str) -> None:
        await self.reading.enter(who)
        self.seen.append(who)

    def start(self, who: str, num: int) -> list["asyncio.Task[None]"]:
        return [asyncio.create_task(self.read(who)) for _ in range(num)]

    async def most_in_a_turn(self, tasks: list["asyncio.Task[None]"]) -> int:
        """Of all that is read until the tasks are done."""
        most = 0
        while not all(task.done() for task in tasks):
            before = len(self.seen)
            await asyncio.sleep(0)
            most = max(most, len(self.seen) - before)
        return most


async def test_few_messages_are_read_at_once() -> None:
    readers = Readers()
    for _ in range(PER_TURN):
        reading = readers.read("a")
        try:
            reading.send(None)
        except StopIteration:
            continue
        raise AssertionError("it waits")


async def test_of_many_each_turn_reads_so_many_with_callers_in_rotation() -> None:
    readers = Readers()
    tasks = readers.start("a", 10 * PER_TURN) + readers.start("b", 3)
    assert await readers.most_in_a_turn(tasks) <= PER_TURN
    assert len(readers.seen) == 10 * PER_TURN + 3
    assert readers.seen.index("b") <= PER_TURN + 1
    assert "ababab" in "".join(readers.seen)


async def test_calls_that_ended_meanwhile_cost_the_others_nothing() -> None:
    readers = Readers()
    tasks = readers.start("a", 3 * PER_TURN)
    await asyncio.sleep(0)
    for task in tasks[PER_TURN : 3 * PER_TURN - 1]:
        task.cancel()
    for _ in range(3):
        await asyncio.sleep(0)
    assert tasks[-1].done() and not tasks[-1].cancelled()
