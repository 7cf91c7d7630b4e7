import time
from pathlib import Path

import torch

from sonorant.training.clock import Clock, falling_rate


def test_a_stage_goes_on_from_where_it_was_stopped(tmp_path: Path) -> None:
    first = Clock(tmp_path / "state.pt")
    assert first.resume() is None
    first.start(time.time() + 0.4)
    time.sleep(0.1)
    first.steps = 7
    first.save({"weight": torch.ones(3)})
    stopped_at = first.done
    assert 0.2 < stopped_at < 1
    second = Clock(tmp_path / "state.pt")
    state = second.resume()
    second.start(time.time() + 1000)
    assert state is not None
    assert torch.equal(state["weight"], torch.ones(3))
    assert second.steps == 7
    assert 0.2 < second.done <= stopped_at + 0.1
    assert [path.name for path in tmp_path.iterdir()] == ["state.pt"]


def test_a_stage_may_have_a_number_of_steps(tmp_path: Path) -> None:
    clock = Clock(tmp_path / "state.pt", max_steps=4)
    clock.start(time.time() + 1000)
    clock.steps = 3
    assert clock.done == 0.75
    clock.steps = 4
    clock.save({})
    again = Clock(tmp_path / "state.pt", max_steps=4)
    again.resume()
    again.start(time.time() + 1000)
    assert clock.done == again.done == 1


def test_the_rate_rises_stays_and_falls() -> None:
    def rate(done: float, steps: int = 1000) -> float:
        return falling_rate(done, steps, warm_up_steps=100, full_until=0.2, last=0.01)

    assert rate(0.0, steps=0) == 0.01
    assert rate(0.1) == 1
    assert 0.4 < rate(0.6) < 0.6
    assert abs(rate(1.0) - 0.01) < 1e-9
