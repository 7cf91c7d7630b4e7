"""Who holds connections keeps nobody out: those that wait for their caller give way, those that are served never do."""

import asyncio
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import aiohttp
import pytest

from sonorant.gateway.web.connections import OpenConnections
from tests.gateway.gateway_process import GatewayProcess
from tests.gateway.harness import gateway
from tests.service.certificates import Certificates
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import spoken
from tests.service.harness import eventually, served

SAID = "still here"
HALF_A_HEAD = b"GET /health HTT"
HALF_A_BODY = b"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"
NOTHING = b""


@contextmanager
def held(port: int, number: int, half: bytes) -> Iterator[list[socket.socket]]:
    """Connections on which half of a request was sent."""
    with ExitStack() as stack:
        connections = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(number)]
        for connection in connections:
            connection.sendall(half)
        yield connections


async def test_connections_are_bounded() -> None:
    async with gateway(FakeEngine(), max_connections=3) as door:
        port = int(door.url.rpartition(":")[2])
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(6)]
        ended = [asyncio.create_task(reader.read()) for reader, _ in held]
        await eventually(lambda: sum(task.done() for task in ended) >= 3, True)
        for _, writer in held:
            writer.close()
        await asyncio.gather(*ended, return_exceptions=True)
        await eventually(door.ready, 200)


@asynccontextmanager
async def with_few_files(folder: Path, limit: str, engine: FakeEngine) -> AsyncIterator[GatewayProcess]:
    async with served(engine) as server:
        arguments = ("--server", server.address)
        process = await asyncio.to_thread(GatewayProcess, folder / "log", *arguments, before=f"ulimit {limit}")
        try:
            yield process
        finally:
            await asyncio.to_thread(process.stop)


@pytest.mark.parametrize("half", [NOTHING, HALF_A_HEAD, HALF_A_BODY], ids=["nothing", "head", "body"])
async def test_half_open_requests_keep_nobody_out(tmp_path: Path, half: bytes) -> None:
    """More of them than the process may open files. Who is served already hears everything."""
    engine = FakeEngine(frame_s=0.01)
    async with with_few_files(tmp_path, "-n 256", engine) as process, aiohttp.ClientSession(process.url) as http:
        port = int(process.url.rpartition(":")[2])

        async def speak() -> tuple[int, bytes]:
            body = {"input": SAID, "response_format": "pcm", "seed": 1}
            async with http.post("/v1/audio/speech", json=body) as response:
                return response.status, await response.read()

        async def is_served() -> bool:
            return (await speak())[0] == 200

        await eventually(is_served, True)
        listening = asyncio.create_task(speak())
        await eventually(lambda: len(engine.live), 1)
        for _ in range(2):
            with held(port, 250, half):
                async with aiohttp.ClientSession(process.url) as newcomer, newcomer.get("/health") as response:
                    assert response.status == 200
        assert await listening == (200, spoken(SAID, seed=1))
        assert process.log.count("connections are open, as many as may be") == 1, "it is told once a minute"


async def test_a_gateway_may_open_as_many_files_as_its_user(tmp_path: Path) -> None:
    async with with_few_files(tmp_path, "-Sn 100", FakeEngine()) as process:
        soft, hard = resource.prlimit(process.process.pid, resource.RLIMIT_NOFILE)
        assert soft == hard != 100
        port = int(process.url.rpartition(":")[2])
        with held(port, 150, HALF_A_HEAD) as connections:
            async with aiohttp.ClientSession(process.url) as http, http.get("/health") as response:
                assert response.status == 200
            connections[0].sendall(b"P/1.1\r\nHost: localhost\r\n\r\n")
            assert connections[0].recv(100).startswith(b"HTTP/1.1 200"), "it was not closed"


async def test_handshakes_that_are_not_made_keep_nobody_out(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    files = certificates.files()
    trust = ssl.create_default_context(cadata=certificates.authority.cert_pem.bytes().decode())
    settings = {"tls_certificate": files.certificate, "tls_key": files.key, "max_connections": 4}
    async with gateway(FakeEngine(), trust=trust, **settings) as door:
        port = int(door.url.rpartition(":")[2])
        with held(port, 12, b"\x16\x03\x01"):
            assert await door.speak(SAID) == (200, spoken(SAID, seed=1))


class Told:
    """A connection that only tells whether it was closed."""

    closed = False

    def abort(self) -> None:
        self.closed = True


def test_the_one_that_has_waited_longest_gives_way() -> None:
    connections = OpenConnections(3)
    first, second, third, fourth, fifth = (Told() for _ in range(5))
    for each in (first, second, third):
        connections.admit(each)
    with connections.busy(first):
        connections.admit(fourth)
        assert second.closed, "the first one is served"
        with connections.waiting(first):
            pass
        connections.forget(third)
    connections.admit(fifth)
    assert not (first.closed or fourth.closed or fifth.closed) and len(connections) == 3
    with connections.busy(first), connections.busy(fourth), connections.busy(fifth):
        late = Told()
        connections.admit(late)
        assert late.closed, "all others are served"
    connections.forget(first)
    with connections.busy(first), connections.busy(None):
        assert len(connections) == 2, "it is lost"
