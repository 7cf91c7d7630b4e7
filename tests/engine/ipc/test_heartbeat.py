"""The counters of a worker's heartbeat agree with each other."""

import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sonorant.engine.ipc.heartbeat import PROMPT_ROW_BUCKETS, ROW_BUCKETS, STEP_S_BUCKETS, Heartbeat, Step
from sonorant.engine.types import PassCounts

NO_PASSES = PassCounts()


@pytest.fixture
def heartbeat() -> Iterator[Heartbeat]:
    with closing(Heartbeat()) as heartbeat:
        yield heartbeat


def test_a_turn_without_rows_was_no_step(heartbeat: Heartbeat) -> None:
    heartbeat.busy()
    heartbeat.idle(Step(0), NO_PASSES)
    work = heartbeat.work()
    assert heartbeat.busy_since_ns == work.busy_s == work.num_rows == 0
    assert not any((*work.num_steps, *work.step_times, *work.prompt_steps))


def test_a_step_is_in_the_bucket_of_its_rows_and_of_its_time(heartbeat: Heartbeat) -> None:
    before_ns = time.monotonic_ns()
    heartbeat.busy()
    assert before_ns <= heartbeat.busy_since_ns <= time.monotonic_ns()
    heartbeat.idle(Step(5, num_prompt_rows=16, num_shared_rows=3), PassCounts(21, 3, 0, 2))
    work = heartbeat.work()
    assert (work.num_rows, work.num_prompt_rows, work.num_shared_rows) == (5, 16, 3)
    assert work.num_steps.index(1) == ROW_BUCKETS.index(8)
    assert work.prompt_steps.index(1) == PROMPT_ROW_BUCKETS.index(16)
    assert work.step_times.index(1) == sum(upper < work.busy_s for upper in STEP_S_BUCKETS)
    assert work.passes == PassCounts(21, 3, 0, 2)


steps = st.builds(Step, st.integers(0, 3000), st.integers(0, 2000), st.integers(0, 500))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(steps, max_size=20))
def test_the_numbers_of_any_steps_add_up(heartbeat: Heartbeat, steps: list[Step]) -> None:
    before = heartbeat.work()
    for step in steps:
        heartbeat.busy()
        heartbeat.idle(step, NO_PASSES)
    work = heartbeat.work()
    done = [step for step in steps if step.num_rows]
    assert work.num_rows - before.num_rows == sum(step.num_rows for step in done)
    assert work.num_prompt_rows - before.num_prompt_rows == sum(step.num_prompt_rows for step in done)
    assert work.num_shared_rows - before.num_shared_rows == sum(step.num_shared_rows for step in done)
    assert sum(work.num_steps) - sum(before.num_steps) == len(done)
    assert sum(work.step_times) == sum(work.num_steps)
    assert sum(work.prompt_steps) - sum(before.prompt_steps) == sum(step.num_prompt_rows > 0 for step in done)
    assert len(work.num_steps) == len(ROW_BUCKETS) + 1
