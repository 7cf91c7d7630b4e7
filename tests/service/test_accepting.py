"""Many calls at the same moment are all taken, and none is ended by gRPC for waiting among others."""

import asyncio
import socket
from contextlib import ExitStack, closing

from sonorant.service.accepting import NUM_ACCEPTORS
from sonorant.tts.v1.text_to_speech_service_pb2 import GetCapabilitiesRequest
from tests.fuzz.http2 import END_HEADERS, HEADERS, PING, PREFACE, SETTINGS, frame, headers
from tests.service.fake_engine import FakeEngine
from tests.service.harness import served

NO_CALL = headers("me", "/no.Such/Method")
CALLS = b"".join(frame(HEADERS, END_HEADERS, 2 * number + 1, NO_CALL) for number in range(1050))


def num_acceptors() -> int:
    return sum("Server._accept" in str(task.get_coro()) for task in asyncio.all_tasks())


async def test_a_burst_is_served_whole_and_nothing_takes_calls_after_the_end() -> None:
    async with served(FakeEngine()) as server:
        assert num_acceptors() == NUM_ACCEPTORS - 1
        answers = await asyncio.gather(*(server.stub.GetCapabilities(GetCapabilitiesRequest()) for _ in range(300)))
        assert {answer.server_version for answer in answers} == {answers[0].server_version}
        server.drain.set()
        assert await server.exit_code == 0
    assert num_acceptors() == 0


async def test_calls_that_wait_in_grpc_do_not_have_those_of_others_cancelled() -> None:
    """Left to itself it ends newcomers by chance, whoever they are, from a thousand on; here 15 of 20."""
    async with served(FakeEngine()) as server:
        host, _, port = server.address.rpartition(":")
        await server.stub.GetCapabilities(GetCapabilitiesRequest())
        with ExitStack() as connections:
            for _ in range(4):  # by hand and in one go: while they come, the event loop takes none
                connection = connections.enter_context(closing(socket.create_connection((host, int(port)))))
                connection.sendall(PREFACE + frame(SETTINGS, 0, 0) + CALLS + frame(PING, 0, 0, b"all here"))
                answer = b""
                while b"all here" not in answer:
                    answer += connection.recv(65_536)
            await asyncio.gather(*(server.stub.GetCapabilities(GetCapabilitiesRequest()) for _ in range(20)))
