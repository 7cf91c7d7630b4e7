"""Three servers behind HAProxy and behind Envoy, as deploy/ sets these up: to callers they are one."""

import asyncio
import json
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from sonorant.client import AudioChunk, Resumed, Session, SpeechClient, synthesis_config
from sonorant.tts.v1 import speak_pb2
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeRequest
from tests.deploy.fronts import FRONTS, Front, HAProxy
from tests.deploy.replicas import Replica
from tests.service.fake_speech import spoken
from tests.service.harness import Stub, Transcript, config, eventually, failure, read_all, read_until, say

# What clients that do not resume are advised to have: docs/scaling.md.
RETRIES = {
    "methodConfig": [
        {
            "name": [{}],
            "retryPolicy": {
                "maxAttempts": 5,
                "initialBackoff": "0.1s",
                "maxBackoff": "1s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ]
}


class Fleet:
    def __init__(self, replicas: list[Replica], front: Front) -> None:
        self.replicas = replicas
        self.front = front
        # How a call ends in the middle of which its server goes. Fronts reset it, each with a code of its own.
        self.lost = grpc.StatusCode.CANCELLED if isinstance(front, HAProxy) else grpc.StatusCode.INTERNAL

    async def settle(self, *fit: bool) -> None:
        """Until the front knows who is fit for new calls, all of them if nothing is said."""
        wanted = list(fit) or [True] * len(self.replicas)
        await eventually(lambda: asyncio.to_thread(self.front.fit), wanted, 30)

    def sessions(self) -> list[int]:
        return [replica.sessions for replica in self.replicas]

    @asynccontextmanager
    async def stub(self) -> AsyncIterator[Any]:
        """Over one connection."""
        async with self.channel() as channel:
            yield Stub(channel)

    def channel(self) -> grpc.aio.Channel:
        options = (("grpc.service_config", json.dumps(RETRIES)), ("grpc.use_local_subchannel_pool", 1))
        return grpc.aio.insecure_channel(f"127.0.0.1:{self.front.port}", options=options)


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


class Listener:
    """A session with an utterance that has begun and is not over."""

    def __init__(self, stub: Any) -> None:
        self._call = stub.Speak()
        self.transcript = Transcript()

    async def begin(self) -> "Listener":
        await self._call.write(speak_pb2.SpeakRequest(config=config()))
        await self._call.write(say("ab", "x"))
        await read_until(self._call, self.transcript, "audio")
        return self

    async def finish(self) -> None:
        """Say the rest, and hear all of it."""
        await self._call.write(say("cd", "x"))
        await self._call.done_writing()
        await read_all(self._call, self.transcript)
        assert self.transcript.done["x"].stats.audio_ms == 4 * 2 * 80
        assert len(self.transcript.pcm["x"]) == 4 * 2 * 1920 * 2

    async def end(self) -> grpc.StatusCode:
        """Of the call, once what can be said and heard of the rest is."""
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await self.finish()
        return await self._call.code()


async def listeners(stub: Any, count: int) -> list[Listener]:
    """One after the other, as people come; so each is placed knowing of those before."""
    return [await Listener(stub).begin() for _ in range(count)]


async def ends(there: list[Listener]) -> Counter[grpc.StatusCode]:
    return Counter(await asyncio.gather(*(listener.end() for listener in there)))


async def test_the_calls_of_one_connection_are_spread_and_none_waits_for_another(fleet: Fleet) -> None:
    async with fleet.stub() as stub:
        there = await listeners(stub, 120)  # all stay
        assert await asyncio.to_thread(fleet.sessions) == [40, 40, 40]
        await asyncio.gather(*(listener.finish() for listener in there))
    await eventually(lambda: asyncio.to_thread(fleet.sessions), [0, 0, 0])


async def test_answers_arrive_as_from_one_server(fleet: Fleet) -> None:
    async def answers(channel: grpc.aio.Channel) -> dict[str, Any]:
        stub = Stub(channel)
        metadata = (("x-request-id", "the-same"),)
        refused = {
            name: await failure(stub.Synthesize(SynthesizeRequest(**fields), metadata=metadata))
            for name, fields in {
                "invalid": {"text": ""},
                "not found": {"text": "a", "config": {"voice": {"voice_id": "nobody"}}},
                "of no value": {"text": "a", "config": {"language": "klingon"}},
            }.items()
        }
        call = stub.Synthesize(SynthesizeRequest(text="ab", config={"sampling": {"seed": 7}}), metadata=metadata)
        response = await call
        response.ClearField("stats")
        unknown = await failure(channel.unary_unary("/sonorant.tts.v1.TextToSpeechService/Sing")(b""))
        health = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service="readiness"))
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        watched = await watch.read()
        watch.cancel()
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo()
        await reflection.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        await reflection.done_writing()
        services = [service.name for service in (await reflection.read()).list_services_response.service]
        # What a front adds itself, about itself, is no answer of the server.
        initial = {
            key: value for key, value in await call.initial_metadata() if key.startswith("x-") and "envoy" not in key
        }
        trailing = {key for key, _ in await call.trailing_metadata() if "envoy" not in key}
        return {
            **refused,
            "response": response,
            "initial": initial,
            "trailing": trailing,
            "unknown": unknown,
            "health": (health, watched),
            "services": services,
        }

    async with grpc.aio.insecure_channel(f"127.0.0.1:{fleet.replicas[0].port}") as one, fleet.channel() as front:
        assert await answers(front) == await answers(one)


async def test_one_that_drains_ends_nothing_and_gets_nothing(fleet: Fleet) -> None:
    async with fleet.stub() as stub:
        there = await listeners(stub, 9)
        fleet.replicas[1].send(signal.SIGTERM)
        await fleet.settle(True, False, True)
        more = await listeners(stub, 4)
        assert await asyncio.to_thread(fleet.sessions) == [5, 3, 5]
        await asyncio.gather(*(listener.finish() for listener in there + more))
    assert await asyncio.to_thread(fleet.replicas[1].wait) == 0


async def test_one_that_is_killed_ends_its_own_calls_alone(fleet: Fleet) -> None:
    async with fleet.stub() as stub:
        there = await listeners(stub, 9)
        fleet.replicas[2].send(signal.SIGKILL)
        more = await listeners(stub, 4)  # at once, before the front has looked
        assert await ends(there) == {grpc.StatusCode.OK: 6, fleet.lost: 3}
        await asyncio.gather(*(listener.finish() for listener in more))


@pytest.mark.slow
async def test_one_that_is_frozen_is_left(fleet: Fleet) -> None:
    frozen = fleet.replicas[0]
    async with fleet.stub() as stub:
        there = await listeners(stub, 9)
        frozen.send(signal.SIGSTOP)
        try:
            await fleet.settle(False, True, True)
            assert await ends(there) == {grpc.StatusCode.OK: 6, fleet.lost: 3}
            await asyncio.gather(*(listener.finish() for listener in await listeners(stub, 4)))
        finally:
            frozen.send(signal.SIGCONT)


@pytest.mark.slow
async def test_a_roll_cuts_nobody(fleet: Fleet) -> None:
    """Each server is replaced while calls come and go."""
    rolled = asyncio.Event()

    async def call_again_and_again(stub: Any) -> int:
        count = 0
        while not rolled.is_set():
            await (await Listener(stub).begin()).finish()
            count += 1
        return count

    async with fleet.stub() as stub:
        callers = [asyncio.create_task(call_again_and_again(stub)) for _ in range(6)]
        for replica in fleet.replicas:
            replica.send(signal.SIGTERM)
            assert await asyncio.to_thread(replica.wait) == 0
            replica.close()
            await asyncio.to_thread(replica.start)
            await fleet.settle()
        rolled.set()
        assert min(await asyncio.gather(*callers)) > 10


@pytest.mark.slow
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
            resumed = await asyncio.wait_for(asyncio.gather(*talks), 40)
        finally:
            if fault is signal.SIGSTOP:
                struck.send(signal.SIGCONT)
    assert [b"".join(heard) for heard in pcm] == [spoken("abcd", seed=7)] * 9
    assert sum(resumed) == (0 if fault is signal.SIGTERM else 3)
