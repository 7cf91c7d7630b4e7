"""Random scripts of sessions, several at once, while workers come and go."""

import asyncio
import random

from tests.service.fake_engine import FakeEngine
from tests.service.harness import Served
from tests.service.scripts import check, draw
from tests.service.session._support import none, run, workers_die

AT_ONCE = 10


async def run_scripts(server: Served, engine: FakeEngine, rng: random.Random) -> int:
    """Returns how many messages went out."""
    plans = [draw(rng) for _ in range(AT_ONCE)]
    trouble = rng.choice((none, none, workers_die))
    runs = [run(server.stub, plan, rng, may_end=False) for plan in plans]
    *transcripts, _ = await asyncio.gather(*runs, trouble(server, engine))
    for plan, transcript in zip(plans, transcripts, strict=True):
        if transcript is not None:
            check(plan, transcript, trouble=trouble is not none)
    return sum(len(plan.requests) for plan in plans)
