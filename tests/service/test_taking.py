"""Many calls at the same moment are all taken, and none is ended by gRPC for waiting among others."""

import asyncio

from sonorant.service.taking import NUM_TAKERS
from sonorant.tts.v1.text_to_speech_service_pb2 import GetCapabilitiesRequest
from tests.service.fake_engine import FakeEngine
from tests.service.harness import served


def num_takers() -> int:
    return sum("Server._take" in str(task.get_coro()) for task in asyncio.all_tasks())


async def test_a_burst_is_served_whole_and_nothing_takes_calls_after_the_end() -> None:
    async with served(FakeEngine()) as server:
        assert num_takers() == NUM_TAKERS - 1
        answers = await asyncio.gather(*(server.stub.GetCapabilities(GetCapabilitiesRequest()) for _ in range(300)))
        assert {answer.server_version for answer in answers} == {answers[0].server_version}
        server.drain.set()
        assert await server.exit_code == 0
    assert num_takers() == 0
