"""Two servers behind nginx, as deploy/nginx.conf sets it up: what it does, and what its operator has to do."""

import asyncio
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest

from sonorant.client import AudioChunk, Resumed, SpeechClient, synthesis_config
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeRequest
from tests.deploy.callers import answers, channel_to, ends, listeners
from tests.deploy.fronts import NGINX_WORKERS, Nginx
from tests.deploy.replicas import Replica
from tests.service.fake_speech import spoken
from tests.service.harness import Stub, eventually, failure

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed"),
]


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Replica]]:
    folder = tmp_path_factory.mktemp("nginx")
    there = [Replica(folder, f"replica-{number}") for number in range(2)]
    yield there
    for replica in there:
        replica.close()


@pytest.fixture
async def nginx(tmp_path: Path, replicas: list[Replica]) -> AsyncIterator[Nginx]:
    """In front of both, whatever the test before has done to them."""
    for replica in replicas:
        if replica.process.poll() is not None:
            replica.close()
            await asyncio.to_thread(replica.start)
    front = Nginx(tmp_path, replicas)
    await eventually(lambda: front.workers_started, NGINX_WORKERS)
    yield front
    front.close()


async def sessions(replicas: list[Replica]) -> list[int]:
    return await asyncio.to_thread(lambda: [replica.sessions for replica in replicas])


async def test_nginx_spreads_calls_and_passes_answers_on(nginx: Nginx, replicas: list[Replica]) -> None:
    async with channel_to(nginx.port) as front, channel_to(replicas[0].port) as one:
        there = await listeners(Stub(front), 120)
        assert await sessions(replicas) == [60, 60]
        assert await answers(front) == await answers(one)
        assert await ends(there) == {grpc.StatusCode.OK: 120}
    await eventually(lambda: sessions(replicas), [0, 0])


async def test_one_that_is_taken_out_of_the_file_drains(nginx: Nginx, replicas: list[Replica]) -> None:
    async with channel_to(nginx.port) as channel:
        stub = Stub(channel)
        there = await listeners(stub, 8)
        await asyncio.to_thread(nginx.reload, [replicas[1]])
        await eventually(lambda: nginx.workers_leaving, NGINX_WORKERS)
        replicas[1].send(signal.SIGTERM)
        more = await listeners(stub, 4)
        assert await sessions(replicas) == [8, 4]
        assert await ends(there + more) == {grpc.StatusCode.OK: 12}
    assert await asyncio.to_thread(replicas[1].wait) == 0


async def test_clients_that_resume_leave_a_server_that_freezes(nginx: Nginx, replicas: list[Replica]) -> None:
    """nginx does not look, and goes on sending calls there."""
    heard: list[bytes] = []
    async with (
        SpeechClient(f"127.0.0.1:{nginx.port}") as client,
        client.speak(synthesis_config(seed=7), max_lead_ms=100, text="ab") as session,
    ):
        async for event in session:
            if isinstance(event.payload, AudioChunk):
                heard.append(event.payload.data)
                break
        (busy,) = [replica for replica, count in zip(replicas, await sessions(replicas), strict=True) if count]
        busy.send(signal.SIGSTOP)
        try:
            await session.send_text("cd")
            await session.finish()
            rest = [event.payload async for event in session]
        finally:
            busy.send(signal.SIGCONT)
    heard += [payload.data for payload in rest if isinstance(payload, AudioChunk)]
    assert b"".join(heard) == spoken("abcd", seed=7)
    assert any(isinstance(payload, Resumed) for payload in rest)


async def test_a_killed_server_ends_its_own_calls_and_no_server_is_a_status(
    nginx: Nginx, replicas: list[Replica]
) -> None:
    async with channel_to(nginx.port) as channel:
        stub = Stub(channel)
        there = await listeners(stub, 8)
        replicas[1].send(signal.SIGKILL)
        more = await listeners(stub, 4)  # at once
        assert await ends(there + more) == {grpc.StatusCode.OK: 8, grpc.StatusCode.INTERNAL: 4}
        replicas[0].send(signal.SIGKILL)
        await asyncio.to_thread(replicas[0].wait)
        code, details, _ = await failure(stub.Synthesize(SynthesizeRequest(text="a")))
        assert (code, details) == (grpc.StatusCode.UNAVAILABLE, "no server could be reached")
