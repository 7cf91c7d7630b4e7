import pytest

from sonorant.client.patience import (
    GRACE_S,
    MAX_ANSWER_S,
    MEMORY_S,
    MIN_ANSWER_S,
    MOST_CALLS,
    RESERVE_S,
    Patience,
    silence_to_ask_ms,
)


def patience(max_silence_s: float = 0.18) -> Patience:
    made = Patience(spread=0.0)
    made.max_silence_s = max_silence_s
    return made


@pytest.mark.parametrize(
    ("lead_ms", "silence_ms"), [(None, 1200), (0, 1200), (300, 180), (2000, 1200), (1, 150), (60_000, 1200)]
)
def test_what_is_asked_for_is_more_than_half_of_the_lead(lead_ms: int | None, silence_ms: int) -> None:
    assert silence_to_ask_ms(lead_ms) == silence_ms


def test_one_who_has_little_left_waits_until_the_promise_is_surely_broken() -> None:
    assert patience().until_s(100.0, 100.0) == pytest.approx(100.18 + GRACE_S)


def test_one_who_has_audio_waits_until_little_is_left() -> None:
    bears = patience(1.2)
    bears.audio(100.0, 1.0)
    bears.audio(100.1, 3.0)
    assert bears.until_s(100.1, 100.1) == pytest.approx(104.0 - RESERVE_S)
    bears.dropped()
    assert bears.until_s(100.1, 100.1) == pytest.approx(101.3 + GRACE_S)


def test_alarms_double_what_is_borne_up_to_a_limit_and_are_forgotten() -> None:
    bears = patience()
    borne, calls = [], []
    for _ in range(6):
        borne.append(bears.until_s(100.0, 100.0) - 100.18)
        calls.append(bears.most_calls(100.0))
        bears.alarm(100.0)
    assert borne == pytest.approx([GRACE_S * k for k in (1, 2, 4, 8, 16, 16)])
    assert calls == [MOST_CALLS, 2, 1, 1, 1, 1]
    later_s = 100.1 + MEMORY_S
    assert bears.until_s(later_s, later_s) == pytest.approx(later_s + 0.18 + GRACE_S)


def test_those_who_share_a_server_lose_patience_one_after_the_other() -> None:
    hasty, calm = Patience(spread=0.0), Patience(spread=1.0)
    assert calm.until_s(100.0, 100.0) - hasty.until_s(100.0, 100.0) == pytest.approx(GRACE_S / 4)


def test_an_answer_may_take_several_times_what_the_quickest_took() -> None:
    bears = patience()
    assert bears.answer_s(100.0, 0.05) == pytest.approx(0.2)
    assert (bears.answer_s(100.0, 0.001), bears.answer_s(100.0, float("inf"))) == (MIN_ANSWER_S, MAX_ANSWER_S)
    bears.alarm(100.0)
    assert bears.answer_s(100.0, 0.05) == pytest.approx(0.4)
