"""Real child processes are replaced, given up, drained, and killed if they do not end."""

import asyncio
import os
import signal
from asyncio.subprocess import Process
from typing import Any

import pytest

from sonorant.hosting import children
from sonorant.hosting.children import Children, ProcessEnded, start_module
from tests.service.harness import eventually


class Some(Children):
    def __init__(self, num: int = 1, num_killed_at_once: int = 0, **settings: Any) -> None:
        self.drain = asyncio.Event()
        self._num_to_kill = num_killed_at_once
        super().__init__("child", num, self.drain, grace_s=0.0)
        self._settings = settings
        self.serving: list[int] = []  # process ids
        self.ended: list[int] = []

    async def start(self, number: int) -> Process:
        settings = self._settings | ({"serves": False} if self._num_to_kill else {})
        process = await start_module("tests.hosting.child", settings=settings, environment=dict(os.environ))
        if self._num_to_kill:
            self._num_to_kill -= 1
            process.kill()
        return process

    async def fail(self, number: int) -> Process:
        raise OSError("no more processes")

    async def on_event(self, number: int, pid: int, told: dict[str, Any]) -> None:
        assert told == {"event": "serving"}
        self.serves(number)
        self.serving.append(pid)

    def on_end(self, number: int, pid: int) -> None:
        self.ended.append(pid)


async def test_one_that_dies_is_replaced_and_the_others_stay() -> None:
    some = Some(num=2)
    running = asyncio.create_task(some.run())
    await eventually(lambda: len(some.serving), 2)
    first, second = some.serving
    os.kill(first, signal.SIGKILL)
    await eventually(lambda: len(some.serving), 3)
    assert some.ended == [first]
    some.drain.set()
    assert await running == [-signal.SIGTERM] * 2
    assert sorted(some.ended) == sorted(some.serving) and second in some.serving


async def test_one_that_never_served_ends_all() -> None:
    some = Some(serves=False, status=3)
    with pytest.raises(ProcessEnded, match="child 1 ended with status 3, see its log"):
        await some.run()
    assert len(some.ended) == 1


async def test_one_that_is_killed_before_it_serves_is_started_again() -> None:
    some = Some(num_killed_at_once=2)
    running = asyncio.create_task(some.run())
    await eventually(lambda: len(some.serving), 1)
    assert len(some.ended) == 2
    some.drain.set()
    assert await running == [-signal.SIGTERM]


async def test_one_that_is_killed_again_and_again_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "START_DELAYS_S", (0.0, 0.0))
    some = Some(num_killed_at_once=9)
    with pytest.raises(ProcessEnded, match="child 1 ended with status -9"):
        await some.run()
    assert len(some.ended) == 3


async def test_one_that_keeps_failing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "START_DELAYS_S", (0.0, 0.0))
    some = Some(status=1)
    with pytest.raises(ProcessEnded, match="child 1 ended with status 1"):
        await some.run()
    assert len(some.serving) == 3


async def test_one_that_keeps_failing_is_started_again_while_another_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "START_DELAYS_S", (0.0,))
    some = Some(num=2)
    running = asyncio.create_task(some.run())
    await eventually(lambda: len(some.serving), 2)
    first, second = some.serving
    for num_killed in (1, 2, 3):
        os.kill(first, signal.SIGKILL)
        await eventually(lambda: len(some.serving), 2 + num_killed)
        first = some.serving[-1]
    assert second not in some.ended
    monkeypatch.setattr(some, "start", some.fail)  # from here on neither serves
    for pid in (first, second):
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(ProcessEnded, match=r"child . ended with status (1|-9)"):
        await running


async def test_one_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "STOP_TIMEOUT_S", 0.2)
    some = Some(deaf=True)
    running = asyncio.create_task(some.run())
    await eventually(lambda: len(some.serving), 1)
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled() and some.ended == some.serving


async def test_an_error_of_what_is_done_beside_them_ends_them() -> None:
    some = Some()

    async def fail() -> None:
        await eventually(lambda: len(some.serving), 1)
        raise ValueError("beside")

    with pytest.raises(ValueError, match="beside"):
        await some.run(fail())
    assert some.ended == some.serving
