import pytest

from service.playback import Playback


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def playback(clock: Clock) -> Playback:
    return Playback(clock)


def test_what_was_sent_is_heard_in_real_time(playback: Playback, clock: Clock) -> None:
    playback.sent("a", 500)
    playback.sent("b", 500)
    assert playback.lead_ms() == 1000
    assert playback.ends_s == pytest.approx(101)
    clock.now += 0.7
    assert playback.lead_ms() == pytest.approx(300)
    clock.now += 10
    assert playback.lead_ms() == 0
    playback.sent("b", 80)
    assert playback.lead_ms() == 80, "silence does not count as heard"


def test_wait_until_the_lead_has_room(playback: Playback, clock: Clock) -> None:
    assert playback.wait_s(80, 400) == 0
    playback.sent("a", 400)
    assert playback.wait_s(80, 400) == pytest.approx(0.08)
    clock.now += 0.08
    assert playback.wait_s(80, 400) == pytest.approx(0)
    assert playback.wait_s(80, 0) == 0, "no limit"


def test_a_piece_longer_than_the_limit_goes_when_all_before_it_was_heard(playback: Playback) -> None:
    assert playback.wait_s(1000, 400) == 0
    playback.sent("a", 200)
    assert playback.wait_s(1000, 400) == pytest.approx(0.2)


def test_reports_put_the_listener_where_it_is(playback: Playback, clock: Clock) -> None:
    playback.sent("a", 1000)
    clock.now += 0.5
    playback.report("a", 100)
    assert playback.lead_ms() == pytest.approx(900), "it started late"
    playback.report("", 950)
    assert playback.lead_ms() == pytest.approx(50)
    playback.report("a", 5000)
    assert playback.lead_ms() == 0


def test_a_report_about_the_second_means_that_the_first_was_heard(playback: Playback) -> None:
    playback.sent("a", 1000)
    playback.sent("b", 1000)
    playback.report("unknown", 10)
    assert playback.lead_ms() == 2000
    playback.report("b", 100)
    assert playback.lead_ms() == pytest.approx(900)


def test_what_the_client_drops_is_no_lead(playback: Playback) -> None:
    playback.sent("a", 1000)
    playback.sent("b", 500)
    playback.drop("a")
    assert playback.lead_ms() == 500
    playback.drop("*")
    assert playback.lead_ms() == 0
    assert playback.ends_s == 100
