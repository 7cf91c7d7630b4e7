"""Listeners beside a hostile client: all their audio comes, whole and in order (how soon: `tests.measure.hostile`)."""

import asyncio
import random
from contextlib import suppress
from pathlib import Path

import grpc
import pytest

from tests.fuzz.rounds import target
from tests.measure.attacks import ATTACKS
from tests.service.fake_speech import spoken
from tests.service.harness import config, say, speak

NUM_LISTENERS = 4
NUM_UTTERANCES = 2
TEXT = "All of this is heard."


@pytest.mark.slow
async def test_listeners_lose_nothing_beside_a_hostile_client(tmp_path: Path) -> None:
    async with target(tmp_path) as under_fire:
        server, under_fire.engine.checks_codes = under_fire.server, False

        async def listen() -> None:
            for _ in range(NUM_UTTERANCES):
                transcript = await speak(server.stub, [config(sampling={"seed": 7}), *(say(word) for word in TEXT)])
                assert transcript.pcm == {"u1": spoken(TEXT, 7)}

        attacks = [asyncio.create_task(act(server.address, random.Random(n))) for n, act in enumerate(ATTACKS)]
        await asyncio.gather(*(listen() for _ in range(NUM_LISTENERS)))
        for task in attacks:
            task.cancel()
            with suppress(asyncio.CancelledError, grpc.aio.AioRpcError, OSError, asyncio.InvalidStateError):
                await task
        await under_fire.check()
