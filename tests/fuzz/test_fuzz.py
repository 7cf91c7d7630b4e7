"""A bounded part of `make fuzz`, the same in every run."""

import random
from pathlib import Path

import pytest

from tests.fuzz.rough import rough
from tests.fuzz.rounds import ROUNDS, target
from tests.fuzz.worker_kills import run_killed_sessions

NUM_ROUNDS = {
    "messages": 400,
    "http2": 40,
    "doors": 60,
    "forms": 60,
    "bursts": 8,
    "sessions": 5,
    "resumes": 5,
    "uploads": 500,
    "files": 150,
}
KILLED_SEED = 5  # after 24 responses, when all sessions speak


@pytest.mark.parametrize("kind", ROUNDS)
async def test_noise_hurts_nobody(kind: str, tmp_path: Path) -> None:
    async with target(tmp_path) as under_fire:
        for seed in range(NUM_ROUNDS[kind]):
            await ROUNDS[kind](under_fire, random.Random(seed))
        await under_fire.check()


@pytest.mark.rare
@pytest.mark.slow
@pytest.mark.timeout(360)  # a worker is loaded anew, and all that is said, is said twice
async def test_a_worker_that_is_killed_takes_no_session_along_and_leaves_nothing_behind(tmp_path: Path) -> None:
    async with rough(tmp_path) as server:
        await run_killed_sessions(server, random.Random(KILLED_SEED))
        assert server.num_kills == 1
        assert {"resumed", "FINISH_REASON_COMPLETED"} <= set(server.ends)
