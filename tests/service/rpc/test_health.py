"""Health is told to everyone, whatever others do with theirs."""

import asyncio
from contextlib import suppress
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from h2.events import ResponseReceived

from sonorant.engine import EngineState
from sonorant.service.rpc import health
from tests.service.fake_engine import FakeEngine
from tests.service.harness import eventually, failure, served
from tests.service.raw_http2 import CLOSED_WINDOW, raw_connection

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
WATCH = "/grpc.health.v1.Health/Watch"


def watch(channel: grpc.aio.Channel, service: str = "") -> Any:
    return health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=service))


async def test_a_watcher_that_takes_nothing_keeps_health_from_nobody() -> None:
    engine = FakeEngine()
    async with served(engine) as server, raw_connection(server.address, CLOSED_WINDOW) as stuck:
        await stuck.read(ResponseReceived, stream=await stuck.call(WATCH, health_pb2.HealthCheckRequest()))
        well = watch(server.channel)
        assert (await well.read()).status == SERVING
        for state, status in ((EngineState.RESTARTING, NOT_SERVING), (EngineState.READY, SERVING)):
            engine.enter(state)
            assert (await asyncio.wait_for(well.read(), 60)).status == status
            await server.wait_for_health(status, 60)


async def test_a_watcher_that_takes_nothing_does_not_hold_up_the_end() -> None:
    async with served(FakeEngine()) as server, raw_connection(server.address, CLOSED_WINDOW) as stuck:
        await stuck.read(ResponseReceived, stream=await stuck.call(WATCH, health_pb2.HealthCheckRequest()))
        await server.wait_for_health(SERVING)
        server.drain.set()
        assert await asyncio.wait_for(server.exit_code, 25) == 0


async def test_each_watcher_hears_every_change_whoever_else_leaves() -> None:
    engine = FakeEngine()
    async with served(engine) as server:
        one, other = watch(server.channel), watch(server.channel)
        for call in (one, other):
            assert (await call.read()).status == SERVING
        one.cancel()
        for state, status in ((EngineState.RESTARTING, NOT_SERVING), (EngineState.READY, SERVING)):
            engine.enter(state)
            assert (await asyncio.wait_for(other.read(), 60)).status == status


async def test_names_that_nobody_told_are_unknown() -> None:
    async with served(FakeEngine()) as server:
        assert (await watch(server.channel, "nothing").read()).status == UNKNOWN
        check = health_pb2_grpc.HealthStub(server.channel).Check
        assert (await failure(check(health_pb2.HealthCheckRequest(service="nothing"))))[0] == grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("limit", ["MAX_WATCHERS", "MAX_WATCHERS_PER_HOST"])
async def test_only_so_many_watch_and_others_may_still_ask(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(health, limit, 2)
    async with served(FakeEngine()) as server:
        one, other = watch(server.channel), watch(server.channel)
        for call in (one, other):
            assert (await call.read()).status == SERVING
        assert (await failure(watch(server.channel)))[0] == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await server.health() == SERVING
        one.cancel()

        async def may_watch_again() -> bool:
            with suppress(grpc.aio.AioRpcError):  # the server may get to know of the cancelled call later
                return await watch(server.channel).read() is not grpc.aio.EOF
            return False

        await eventually(may_watch_again, True)
