from sonorant.client.transport.silence_limits import GRACE_S, SilenceLimits
from sonorant.client.transport.silence_timer import SilenceTimer
from tests.fake_loop import FakeLoop

SILENCE_S = 0.18
GIVE_UP_S = SILENCE_S + GRACE_S


class Watched:
    def __init__(self) -> None:
        self.loop = FakeLoop()
        self.is_due = True
        self.alarms_s: list[float] = []
        self.limits = SilenceLimits(spread=0.0)
        self.limits.max_silence_s = SILENCE_S
        self.timer = SilenceTimer(self.limits, lambda: self.is_due, self._alarm, self.loop)
        self.timer.expect_response()
        self.timer.reading_started()

    def _alarm(self) -> None:
        self.alarms_s.append(round(self.loop.now_s - 1000, 6))
        self.limits.add_alarm(self.loop.now_s)

    def receive(self) -> None:
        self.timer.reading_ended()
        self.timer.reading_started()


def test_silence_counts_from_the_last_response() -> None:
    watched = Watched()
    for _ in range(20):
        watched.loop.run(0.17)
        watched.receive()
    assert watched.alarms_s == [] and watched.loop.num_timers == 1
    watched.loop.run(GIVE_UP_S + 0.001)
    assert watched.alarms_s == [round(20 * 0.17 + GIVE_UP_S, 6)]


def test_each_alarm_comes_later_than_the_one_before() -> None:
    watched = Watched()
    watched.loop.run(3.0)
    first_s, second_s, third_s = watched.alarms_s[:3]
    assert second_s - first_s > first_s and third_s - second_s > second_s - first_s


def test_silence_does_not_count_while_nobody_reads() -> None:
    watched = Watched()
    watched.timer.reading_ended()  # the caller is busy with the response
    watched.loop.run(10.0)
    assert watched.alarms_s == []
    watched.timer.reading_started()
    watched.loop.run(GIVE_UP_S - 0.001)
    assert watched.alarms_s == []
    watched.loop.run(0.3)
    assert len(watched.alarms_s) == 1


def test_a_stalled_process_first_reads_what_came_meanwhile() -> None:
    watched = Watched()
    watched.loop.run(5.0, at_once=True)
    assert watched.alarms_s == []
    watched.receive()
    watched.loop.run(0.1)
    assert watched.alarms_s == []
    watched.loop.run(6.0)
    assert watched.alarms_s, "after that, silence counts"


def test_silence_counts_only_while_a_response_is_due() -> None:
    watched = Watched()
    watched.is_due = False
    watched.loop.run(10.0)
    assert watched.alarms_s == [] and watched.loop.num_timers == 0
    watched.is_due = True
    watched.timer.expect_response()  # the read began long before
    watched.loop.run(GIVE_UP_S - 0.001)
    assert watched.alarms_s == []
    watched.loop.run(0.002)
    assert len(watched.alarms_s) == 1
    watched.timer.stop()
    assert watched.loop.num_timers == 0
