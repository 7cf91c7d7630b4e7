"""Who may read when: so many messages a second of all calls, and of all callers in rotation."""

import asyncio

from sonorant.service.calls.reading import AT_ONCE, PER_S, Reading
from tests.service.harness import eventually


class Readers:
    """What was let in, by a clock that nothing else moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.seen: list[str] = []
        self.reading = Reading(lambda: self.now_s)

    async def read(self, who: str) -> None:
        await self.reading.enter(who)
        self.seen.append(who)

    def start(self, who: str, num: int) -> list["asyncio.Task[None]"]:
        return [asyncio.create_task(self.read(who)) for _ in range(num)]

    async def pass_time(self, num: int) -> None:
        """As long as so many messages take."""
        expected = len(self.seen) + num
        self.now_s += num / PER_S + 1e-9  # against rounding
        await eventually(lambda: len(self.seen), expected)
        await asyncio.sleep(0.005)
        assert len(self.seen) == expected


async def test_few_messages_are_read_at_once() -> None:
    readers = Readers()
    for _ in range(AT_ONCE):
        reading = readers.read("a")
        try:
            reading.send(None)
        except StopIteration:
            continue
        raise AssertionError("it waits")


async def test_many_are_read_as_time_passes_with_callers_in_rotation() -> None:
    readers = Readers()
    tasks = readers.start("a", AT_ONCE + 20)
    await asyncio.sleep(0)
    tasks += readers.start("b", 3)
    await asyncio.sleep(0)
    assert readers.seen == ["a"] * AT_ONCE
    await readers.pass_time(10)
    assert "ababab" in "".join(readers.seen)
    await readers.pass_time(13)
    await asyncio.gather(*tasks)


async def test_calls_that_ended_meanwhile_cost_the_others_nothing() -> None:
    readers = Readers()
    tasks = readers.start("a", AT_ONCE + 20)
    await asyncio.sleep(0)
    for task in tasks[AT_ONCE : AT_ONCE + 19]:
        task.cancel()
    await readers.pass_time(1)
    assert tasks[-1].done() and not tasks[-1].cancelled()
