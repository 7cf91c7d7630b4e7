"""Many calls at the same moment are all taken, and none is ended by gRPC for waiting among others."""

import asyncio
import subprocess
import sys
from contextlib import ExitStack

from sonorant.service.listening.accepting import NUM_ACCEPTORS
from sonorant.tts.v1.text_to_speech_service_pb2 import GetCapabilitiesRequest
from tests.service.fake_engine import FakeEngine
from tests.service.flooded import Flood
from tests.service.harness import served


def num_acceptors() -> int:
    return sum("Server._accept" in str(task.get_coro()) for task in asyncio.all_tasks())


async def test_a_burst_is_served_whole_and_nothing_takes_calls_after_the_end() -> None:
    async with served(FakeEngine(), acceptors=NUM_ACCEPTORS) as server:
        assert num_acceptors() == NUM_ACCEPTORS - 1
        answers = await asyncio.gather(*(server.stub.GetCapabilities(GetCapabilitiesRequest()) for _ in range(300)))
        assert {answer.server_version for answer in answers} == {answers[0].server_version}
        server.drain.set()
        assert await server.exit_code == 0
    assert num_acceptors() == 0


async def test_calls_that_wait_in_grpc_do_not_have_those_of_others_cancelled() -> None:
    """Left to itself it ends newcomers by chance, whoever they are, from a thousand on; here 15 of 20."""
    async with served(FakeEngine(), acceptors=NUM_ACCEPTORS) as server:
        await server.stub.GetCapabilities(GetCapabilitiesRequest())
        with ExitStack() as connections:
            for _ in range(4):
                Flood(connections, server)
            await asyncio.gather(*(server.stub.GetCapabilities(GetCapabilitiesRequest()) for _ in range(20)))


async def test_a_call_of_another_host_is_answered_before_most_of_a_flood() -> None:
    """In a process of its own: here another test may have set gRPC up already, without our pipe."""
    run = await asyncio.create_subprocess_exec(sys.executable, "-m", "tests.service.flooded", stdout=subprocess.PIPE)
    told, _ = await run.communicate()
    num_answered, num_all = map(int, told.split())
    # Two thirds on an idle machine, and up to 0.86 of them beside much other work.
    assert num_answered < 0.95 * num_all, "left to itself, gRPC would have answered all of them before"
