"""A worker hangs if it makes no progress while we are awake; time that we slept through says nothing."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from sonorant.engine.ipc.heartbeat import Heartbeat, Step
from sonorant.engine.ipc.ring import Ring
from sonorant.engine.types import PassCounts
from sonorant.engine.workers.watch import WorkerWatch
from tests.fakes import FakeClock


class Watched:
    def __init__(self, heartbeat: Heartbeat, ring: Ring) -> None:
        self.heartbeat, self.ring, self.clock = heartbeat, ring, FakeClock()
        self.watch = WorkerWatch("talker", heartbeat, ring, timeout_s=10.0, interval_s=1.0, clock=self.clock)

    def look(self, *after_s: float) -> str:
        complaint = ""
        for seconds in after_s:
            self.clock.now_s += seconds
            complaint = complaint or self.watch.complaint()
        return complaint


@pytest.fixture
def watched() -> Iterator[Watched]:
    with closing(Heartbeat()) as heartbeat, closing(Ring(1024)) as ring:
        yield Watched(heartbeat, ring)


def test_one_step_for_too_long_is_a_hang(watched: Watched) -> None:
    watched.heartbeat.busy()
    assert watched.look(*[1.0] * 10) == ""
    assert "busy with one step for" in watched.look(1.0, 1.0)


def test_another_step_is_not_the_same(watched: Watched) -> None:
    for _ in range(5):
        watched.heartbeat.busy()
        assert watched.look(*[1.0] * 8) == ""
        watched.heartbeat.idle(Step(1), PassCounts())
    assert watched.look(*[1.0] * 20) == "", "waiting is no step"


def test_an_inbox_that_is_not_read_is_a_hang(watched: Watched) -> None:
    watched.ring.write([b"command"])
    watched.ring.publish()
    assert "has not read its inbox" in watched.look(*[1.0] * 12)


@pytest.mark.parametrize("slept_s", [11.0, 3600.0])
def test_who_was_stopped_together_with_us_does_not_hang(watched: Watched, slept_s: float) -> None:
    watched.heartbeat.busy()
    watched.ring.write([b"command"])
    watched.ring.publish()
    assert watched.look(1.0, slept_s, 1.0, slept_s) == ""
    assert watched.look(*[1.0] * 12), "and hangs if it goes on like this"
