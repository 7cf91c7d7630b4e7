import pytest

from sonorant.service.pacing.pacer import Playout


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def playout(clock: Clock) -> Playout:
    return Playout(clock)


def test_what_was_sent_is_heard_in_real_time(playout: Playout, clock: Clock) -> None:
    playout.sent("a", 500)
    playout.sent("b", 500)
    assert playout.lead_ms() == 1000
    assert playout.ends_s == pytest.approx(101)
    clock.now += 0.7
    assert playout.lead_ms() == pytest.approx(300)
    clock.now += 10
    assert playout.lead_ms() == 0
    playout.sent("b", 80)
    assert playout.lead_ms() == 80, "silence does not count as heard"


def test_wait_until_the_lead_has_room(playout: Playout, clock: Clock) -> None:
    assert playout.wait_s(80, 400) == 0
    playout.sent("a", 400)
    assert playout.wait_s(80, 400) == pytest.approx(0.08)
    clock.now += 0.08
    assert playout.wait_s(80, 400) == pytest.approx(0)
    assert playout.wait_s(80, 0) == 0, "no limit"


def test_a_piece_longer_than_the_limit_goes_when_all_before_it_was_heard(playout: Playout) -> None:
    assert playout.wait_s(1000, 400) == 0
    playout.sent("a", 200)
    assert playout.wait_s(1000, 400) == pytest.approx(0.2)


def test_reports_put_the_listener_where_it_is(playout: Playout, clock: Clock) -> None:
    playout.sent("a", 1000)
    clock.now += 0.5
    playout.report("a", 100)
    assert playout.lead_ms() == pytest.approx(900), "it started late"
    playout.report("", 950)
    assert playout.lead_ms() == pytest.approx(50)
    playout.report("a", 5000)
    assert playout.lead_ms() == 0


def test_a_report_about_the_second_means_that_the_first_was_heard(playout: Playout) -> None:
    playout.sent("a", 1000)
    playout.sent("b", 1000)
    playout.report("unknown", 10)
    assert playout.lead_ms() == 2000
    playout.report("b", 100)
    assert playout.lead_ms() == pytest.approx(900)


def test_what_the_client_drops_is_no_lead(playout: Playout) -> None:
    playout.sent("a", 1000)
    playout.sent("b", 500)
    playout.drop("a")
    assert playout.lead_ms() == 500
    playout.drop("*")
    assert playout.lead_ms() == 0
    assert playout.ends_s == 100
