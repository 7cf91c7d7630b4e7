"""An event loop of timers alone, whose time passes when the test says so."""

import asyncio
from collections.abc import Callable
from typing import Any


class FakeTimer:
    def __init__(self, when_s: float, act: Callable[[], object]) -> None:
        self.when_s = when_s
        self.act = act
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class FakeLoop(asyncio.AbstractEventLoop):
    def __init__(self) -> None:
        self.now_s = 1000.0
        self._timers: list[FakeTimer] = []

    def time(self) -> float:
        return self.now_s

    def call_at(self, when: float, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:
        timer = FakeTimer(when, lambda: callback(*args))
        self._timers.append(timer)
        return timer

    @property
    def num_timers(self) -> int:
        return sum(not timer.is_cancelled for timer in self._timers)

    def run(self, seconds: float, *, at_once: bool = False) -> None:
        """`at_once`: the process stands still meanwhile, and every timer is late."""
        end_s = self.now_s + seconds
        if at_once:
            self.now_s = end_s
        while due := [timer for timer in self._timers if not timer.is_cancelled and timer.when_s <= end_s]:
            timer = min(due, key=lambda timer: timer.when_s)
            self._timers.remove(timer)
            self.now_s = max(self.now_s, timer.when_s)
            timer.act()
        self.now_s = end_s
