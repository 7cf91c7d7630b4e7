import pytest

from sonorant.client.transport.silence_limits import (
    ALARM_LIFETIME_S,
    GRACE_S,
    MAX_ANSWER_S,
    MAX_CALLS,
    MIN_ANSWER_S,
    RESERVE_S,
    SilenceLimits,
    max_silence_for_lead_ms,
)


def limits(max_silence_s: float = 0.18) -> SilenceLimits:
    made = SilenceLimits(spread=0.0)
    made.max_silence_s = max_silence_s
    return made


@pytest.mark.parametrize(
    ("lead_ms", "silence_ms"), [(None, 1200), (0, 1200), (300, 180), (2000, 1200), (1, 150), (60_000, 1200)]
)
def test_the_silence_to_ask_for_depends_on_the_lead(lead_ms: int | None, silence_ms: int) -> None:
    assert max_silence_for_lead_ms(lead_ms) == silence_ms


def test_without_audio_left_the_server_is_given_up_after_its_promise_and_the_grace_period() -> None:
    assert limits().give_up_at_s(100.0, 100.0) == pytest.approx(100.18 + GRACE_S)


def test_with_audio_left_the_server_is_given_up_when_little_is_left() -> None:
    session = limits(1.2)
    session.add_audio(100.0, 1.0)
    session.add_audio(100.1, 3.0)
    assert session.give_up_at_s(100.1, 100.1) == pytest.approx(104.0 - RESERVE_S)
    assert session.drop_audio(100.5) == pytest.approx(3.5)
    assert session.drop_audio(100.5) == 0
    assert session.give_up_at_s(100.1, 100.1) == pytest.approx(101.3 + GRACE_S)


def test_alarms_double_the_grace_period_up_to_a_limit_and_are_forgotten() -> None:
    session = limits()
    graces_s, calls = [], []
    for _ in range(6):
        graces_s.append(session.give_up_at_s(100.0, 100.0) - 100.18)
        calls.append(session.max_calls(100.0))
        session.add_alarm(100.0)
    assert graces_s == pytest.approx([GRACE_S * k for k in (1, 2, 4, 8, 16, 16)])
    assert calls == [MAX_CALLS, 2, 1, 1, 1, 1]
    later_s = 100.1 + ALARM_LIFETIME_S
    assert session.give_up_at_s(later_s, later_s) == pytest.approx(later_s + 0.18 + GRACE_S)


def test_sessions_of_one_server_give_it_up_one_after_the_other() -> None:
    first, last = SilenceLimits(spread=0.0), SilenceLimits(spread=1.0)
    assert last.give_up_at_s(100.0, 100.0) - first.give_up_at_s(100.0, 100.0) == pytest.approx(GRACE_S / 4)


def test_an_answer_may_take_several_times_as_long_as_the_fastest() -> None:
    session = limits()
    assert session.max_answer_s(100.0, 0.05) == pytest.approx(0.2)
    assert session.max_answer_s(100.0, 0.001) == MIN_ANSWER_S
    assert session.max_answer_s(100.0, float("inf")) == MAX_ANSWER_S
    session.add_alarm(100.0)
    assert session.max_answer_s(100.0, 0.05) == pytest.approx(0.4)
