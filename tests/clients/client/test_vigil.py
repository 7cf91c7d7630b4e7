from sonorant.client.patience import GRACE_S, Patience
from sonorant.client.vigil import Vigil
from tests.fake_loop import FakeLoop

SILENCE_S = 0.18
BORNE_S = SILENCE_S + GRACE_S


class Watched:
    def __init__(self) -> None:
        self.loop = FakeLoop()
        self.is_due = True
        self.alarms_s: list[float] = []
        self.patience = Patience(spread=0.0)
        self.patience.max_silence_s = SILENCE_S
        self.vigil = Vigil(self.patience, lambda: self.is_due, self._alarm, self.loop)
        self.vigil.begins()
        self.vigil.reads()

    def _alarm(self) -> None:
        self.alarms_s.append(round(self.loop.now_s - 1000, 6))
        self.patience.alarm(self.loop.now_s)

    def hear(self) -> None:
        self.vigil.heard()
        self.vigil.reads()


def test_silence_is_counted_from_what_was_heard_last() -> None:
    watched = Watched()
    for _ in range(20):
        watched.loop.run(0.17)
        watched.hear()
    assert watched.alarms_s == [] and watched.loop.num_timers == 1
    watched.loop.run(BORNE_S + 0.001)
    assert watched.alarms_s == [round(20 * 0.17 + BORNE_S, 6)]


def test_each_alarm_comes_later_than_the_one_before() -> None:
    watched = Watched()
    watched.loop.run(3.0)
    first_s, second_s, third_s = watched.alarms_s[:3]
    assert second_s - first_s > first_s and third_s - second_s > second_s - first_s


def test_nothing_is_heard_by_who_does_not_read() -> None:
    watched = Watched()
    watched.vigil.heard()  # and busy with it
    watched.loop.run(10.0)
    assert watched.alarms_s == []
    watched.vigil.reads()
    watched.loop.run(BORNE_S - 0.001)
    assert watched.alarms_s == []
    watched.loop.run(0.3)
    assert len(watched.alarms_s) == 1


def test_a_process_that_stood_still_reads_first_what_came_meanwhile() -> None:
    watched = Watched()
    watched.loop.run(5.0, at_once=True)
    assert watched.alarms_s == []
    watched.hear()
    watched.loop.run(0.1)
    assert watched.alarms_s == []
    watched.loop.run(6.0)
    assert watched.alarms_s, "and then it counts"


def test_nothing_is_due_before_something_is_opened_or_behind_the_last() -> None:
    watched = Watched()
    watched.is_due = False
    watched.loop.run(10.0)
    assert watched.alarms_s == [] and watched.loop.num_timers == 0
    watched.is_due = True
    watched.vigil.begins()  # though the read began long ago
    watched.loop.run(BORNE_S - 0.001)
    assert watched.alarms_s == []
    watched.loop.run(0.002)
    assert len(watched.alarms_s) == 1
    watched.vigil.stop()
    assert watched.loop.num_timers == 0
