"""What a worker left for later is done in pieces, in order, with pauses."""

import pytest

from sonorant.engine.deferred_work import PAUSE_S, DeferredWork, sooner


def test_pieces_are_done_in_order_with_pauses() -> None:
    done, now_s = list[int](), 10.0

    def piece(number: int) -> None:
        nonlocal now_s
        now_s += 0.04  # it takes its time
        done.append(number)

    work = DeferredWork([lambda: piece(1), lambda: piece(2)], clock=lambda: now_s)
    assert work.turn() == pytest.approx(PAUSE_S), "streams that wait for the new worker go first"
    now_s += PAUSE_S / 2
    assert work.turn() == pytest.approx(PAUSE_S / 2)
    assert done == []
    now_s += PAUSE_S
    assert work.turn() == pytest.approx(PAUSE_S)
    assert work.turn() == pytest.approx(PAUSE_S)
    assert done == [1]
    now_s += PAUSE_S
    assert work.turn() is None
    assert done == [1, 2]
    assert DeferredWork().turn() is None


def test_the_shorter_wait() -> None:
    assert sooner(None, None) is None
    assert sooner(None, 0.0) == sooner(0.0, None) == sooner(0.0, 1.0) == 0.0
