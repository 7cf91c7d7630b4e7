"""Random scripts over many sessions at once: what holds whatever is sent, when, and whatever else happens."""

import asyncio
import gc
import random

import grpc
import pytest

from sonorant.service.session.session import ServedSession
from sonorant.tts.v1.text_to_speech_service_pb2 import GetCapabilitiesRequest
from tests.service.fake_engine import FakeEngine
from tests.service.harness import Served, Stub, eventually, served
from tests.service.scripts import check, draw
from tests.service.session._support import Trouble, none, run, workers_die

NUM_SESSIONS = 80
NUM_CHANNELS = 4


async def server_drains(server: Served, engine: FakeEngine) -> None:
    await eventually(lambda: engine.num_opened > NUM_SESSIONS // 2, True)
    server.drain.set()


@pytest.mark.parametrize(("trouble", "seed"), [(none, 1), (workers_die, 3), (server_drains, 4)])
async def test_any_script_leaves_one_done_per_utterance_in_order_and_nothing_behind(
    trouble: Trouble, seed: int
) -> None:
    engine = FakeEngine(max_streams=2 * NUM_SESSIONS)
    rng = random.Random(seed)
    plans = [draw(rng) for _ in range(NUM_SESSIONS)]
    async with served(engine, max_sessions=NUM_SESSIONS) as server:
        channels = [grpc.aio.insecure_channel(server.address, (("n", number),)) for number in range(NUM_CHANNELS)]
        tasks_before = len(asyncio.all_tasks())
        drains = trouble is server_drains
        runs = [
            run(Stub(channels[index % NUM_CHANNELS]), plan, rng, may_end=drains) for index, plan in enumerate(plans)
        ]
        *transcripts, _ = await asyncio.gather(*runs, trouble(server, engine))
        judged = [(plan, each) for plan, each in zip(plans, transcripts, strict=True) if each is not None]
        assert sum(bool(transcript.done) for _, transcript in judged) > NUM_SESSIONS // 10
        for plan, transcript in judged:
            check(plan, transcript, trouble=trouble is not none)
        await eventually(lambda: engine.num_streams, 0)
        if drains:
            assert await asyncio.wait_for(server.exit_code, 25) == 0
        else:
            capabilities = await server.stub.GetCapabilities(GetCapabilitiesRequest())
            assert capabilities.active_sessions == 0
            await eventually(lambda: len(asyncio.all_tasks()) <= tasks_before, True)
        for channel in channels:
            await channel.close()
        await eventually(lambda: num_sessions_left() <= NUM_CHANNELS, True)


def num_sessions_left() -> int:
    """After a collection: objects of gRPC refer to each other, some need a turn of the loop; it keeps a last call."""
    gc.collect()
    return sum(type(each) is ServedSession for each in gc.get_objects())
