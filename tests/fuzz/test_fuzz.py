"""A bounded part of `make fuzz`, the same in every run."""

import random
from pathlib import Path

import pytest

from tests.fuzz.rounds import ROUNDS, target

NUM_ROUNDS = {"messages": 400, "http2": 40, "sessions": 5, "uploads": 500, "files": 150}


@pytest.mark.parametrize("kind", ROUNDS)
async def test_noise_hurts_nobody(kind: str, tmp_path: Path) -> None:
    async with target(tmp_path) as under_fire:
        for seed in range(NUM_ROUNDS[kind]):
            await ROUNDS[kind](under_fire, random.Random(seed))
        await under_fire.check()
