"""A server beside a flood of calls from another host: `python -m tests.service.flooded` prints how many of these calls
were answered before one of ours, and how many there were."""

import asyncio
import socket
from contextlib import ExitStack, closing, suppress

from sonorant.service.listening.accepting import NUM_ACCEPTORS
from sonorant.tts.v1.text_to_speech_service_pb2 import GetCapabilitiesRequest
from tests.fuzz.http2 import END_HEADERS, HEADERS, PING, PREFACE, SETTINGS, frame, headers
from tests.service.fake_engine import FakeEngine
from tests.service.harness import Served, eventually, served

NUM_CONNECTIONS, NUM_CALLS = 4, 1050
NO_CALL = headers("me", "/no.Such/Method")
CALLS = b"".join(frame(HEADERS, END_HEADERS, 2 * number + 1, NO_CALL) for number in range(NUM_CALLS))


class Flood:
    """Many calls that are begun by hand and in one go: while they come, the event loop takes none."""

    def __init__(self, connections: ExitStack, server: Served, host: str = "127.0.0.1", calls: bytes = CALLS) -> None:
        """`host`: from where they come."""
        to, _, port = server.address.rpartition(":")
        opened = socket.create_connection((to, int(port)), source_address=(host, 0))
        self._connection = connections.enter_context(closing(opened))
        self._connection.sendall(PREFACE + frame(SETTINGS, 0, 0) + calls + frame(PING, 0, 0, b"all here"))
        self._answers = b""
        while b"all here" not in self._answers:
            self._answers += self._connection.recv(65_536)
        self._connection.setblocking(False)

    def send(self, data: bytes) -> None:
        self._connection.setblocking(True)
        self._connection.sendall(data)

    def num_answers(self) -> int:
        with suppress(BlockingIOError):
            self._answers += self._connection.recv(2**20)
        return self._answers.count(b"Method not found!")


async def main() -> None:
    async with served(FakeEngine(), acceptors=NUM_ACCEPTORS) as server:
        await server.stub.GetCapabilities(GetCapabilitiesRequest())
        with ExitStack() as connections:
            floods = [Flood(connections, server, host="127.0.0.2") for _ in range(NUM_CONNECTIONS)]
            await server.stub.GetCapabilities(GetCapabilitiesRequest())
            print(sum(flood.num_answers() for flood in floods), NUM_CONNECTIONS * NUM_CALLS)
            await eventually(lambda: [flood.num_answers() for flood in floods], NUM_CONNECTIONS * [NUM_CALLS])


if __name__ == "__main__":
    asyncio.run(main())
