"""A bounded part of `make fuzz`, the same in every run."""

import random
from pathlib import Path

import pytest

from tests.fuzz.rough import rough
from tests.fuzz.rounds import ROUNDS, target
from tests.fuzz.worker_kills import run_killed_sessions

NUM_ROUNDS = {"messages": 400, "http2": 40, "sessions": 5, "uploads": 500, "files": 150}
KILLED_SEEDS = (1, 2)  # a worker each


@pytest.mark.parametrize("kind", ROUNDS)
async def test_noise_hurts_nobody(kind: str, tmp_path: Path) -> None:
    async with target(tmp_path) as under_fire:
        for seed in range(NUM_ROUNDS[kind]):
            await ROUNDS[kind](under_fire, random.Random(seed))
        await under_fire.check()


@pytest.mark.slow
async def test_workers_that_are_killed_take_nothing_along_and_leave_nothing_behind(tmp_path: Path) -> None:
    async with rough(tmp_path) as server:
        for seed in KILLED_SEEDS:
            await run_killed_sessions(server, random.Random(seed))
        assert server.num_kills == len(KILLED_SEEDS)
        assert {"resumed", "FINISH_REASON_COMPLETED"} <= set(server.ends)
