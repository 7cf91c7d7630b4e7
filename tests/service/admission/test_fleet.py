"""Limits of a key on three servers with one database: together they give out what one would."""

import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import grpc
import pytest

from sonorant.service.access.api_keys import Caller
from sonorant.service.admission import fleet as fleet_limits
from sonorant.service.admission.fleet import FleetLimits
from sonorant.service.admission.fleet_table import FleetTable
from sonorant.service.admission.ledger import Ledger
from sonorant.service.errors import LimitReached
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeRequest
from sonorant.tts.v1.voice_service_pb2 import CreateVoiceRequest, GetVoiceRequest
from tests.service import postgres
from tests.service.fake_engine import FakeEngine
from tests.service.harness import Served, eventually, failure, served
from tests.service.keys import ADA, BOB, bearer, table
from tests.service.visitors import Visitor, let_in, number_let_in

KEY = bearer(ADA)
ROOMY = "max_sessions = 100\nmax_text_chars_per_minute = 10000000"
ANNA = CreateVoiceRequest(voice_id="anna", speaker_embedding={"values": [0.5] * 8})


@asynccontextmanager
async def fleet(url: str, folder: Path, limits: str) -> AsyncIterator[list[Served]]:
    """Three servers, and a key with these limits; another one's are never reached."""
    (folder / "keys.toml").write_text(table("ada", ADA, limits) + table("bob", BOB, ROOMY))
    settings = {"voices_url": url, "api_keys": folder / "keys.toml", "metrics_listen": "127.0.0.1:0"}
    async with AsyncExitStack() as stack:
        engines = [FakeEngine() for _ in range(3)]
        yield [await stack.enter_async_context(served(engine, **settings)) for engine in engines]


async def test_a_key_with_six_sessions_gets_six_on_three_servers(database: str, tmp_path: Path) -> None:
    async with fleet(database, tmp_path, "max_sessions = 6") as servers:
        inside = await let_in([Visitor(servers[number % 3].stub) for number in range(12)])
        assert len(inside) == 6
        await inside[0].leave()

        async def one_more() -> int:
            inside.extend(more := await let_in([Visitor(server.stub) for server in servers]))
            return len(more)

        await eventually(one_more, 1)
        assert await one_more() == 0


async def test_leases_of_a_server_that_is_gone_end(database: str) -> None:
    here, gone = (FleetTable(database, name) for name in ("here", "gone"))
    assert gone.lease("ada", 6, 6) and not here.lease("ada", 1, 6)
    here._database.run(lambda connection: connection.execute("UPDATE sonorant_sessions SET expire = now()"))
    assert here.lease("ada", 6, 6)
    here.renew({"ada": 2})
    assert gone.lease("ada", 4, 6) and not gone.lease("ada", 5, 6)
    here.close()
    gone.close()


async def test_a_minutes_text_is_the_same_minute_on_three_servers(database: str, tmp_path: Path) -> None:
    async with fleet(database, tmp_path, "max_text_chars_per_minute = 600") as servers:
        await servers[0].voices.CreateVoice(ANNA, metadata=KEY)
        of_anna = {"voice": {"voice_id": "anna"}}  # made on one, known to all
        taken, retries = 0, []
        begun_s = time.monotonic()
        for number in range(60):
            server = servers[number % 3]
            request = SynthesizeRequest(text="abcdefghij" * 3, config=of_anna)
            try:
                await server.stub.Synthesize(request, metadata=KEY)
                taken += 30
            except grpc.aio.AioRpcError as error:
                assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
                retries.append(error)
        of_one_server = 600 + 10 * (time.monotonic() - begun_s)
        assert retries and 600 * 0.85 <= taken <= of_one_server * 1.25


async def test_text_is_borrowed_in_blocks_and_all_at_once(database: str) -> None:
    caller = Caller("ada", max_text_chars_per_minute=600)
    tables = [FleetTable(database, name) for name in "ab"]
    one, other = (FleetLimits(each, lambda is_there: None, Ledger()) for each in tables)
    try:
        await one.prepare(caller, 1)
        one.take(caller, 1)
        of_one, of_other = await one.text_left(caller), await other.text_left(caller)
        assert of_one == 599 and of_other is not None and 570 <= of_other < 580  # the block is taken from all
        one.take(caller, 29)  # of the block of 30
        await other.prepare(caller, 560)
        other.take(caller, 560)
        await one.prepare(caller, 20)
        with pytest.raises(LimitReached) as caught:
            one.take(caller, 20)
        assert caught.value.retry_s is not None and 0 < caught.value.retry_s <= 1
        await one.prepare(caller, 10)  # too little for a block, enough for this
        one.take(caller, 10)
    finally:
        one.close()
        other.close()


@asynccontextmanager
async def load(servers: list[Served]) -> AsyncIterator[Counter[float]]:
    """Calls of another key, on all servers, again and again: how many ended well, by whether the database was there."""
    well: Counter[float] = Counter()

    async def call(server: Served) -> None:
        while True:
            before = await up(server)
            await server.stub.Synthesize(SynthesizeRequest(text="ab"), metadata=bearer(BOB))
            if await up(server) == before:
                well[before] += 1

    callers = [asyncio.create_task(call(server)) for server in servers]
    yield well
    for caller in callers:
        assert not caller.done(), caller.exception()
        caller.cancel()
    await asyncio.wait(callers)


async def test_a_database_that_stops_and_starts_under_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Presets speak, voices are UNAVAILABLE, each server goes by its own counts; all comes back by itself."""
    monkeypatch.setattr(fleet_limits, "RETRY_S", 0.05)
    with tempfile.TemporaryDirectory(prefix="postgres-") as folder:
        cluster = await asyncio.to_thread(postgres.Cluster, Path(folder))
        limits = "max_sessions = 2\nmax_text_chars_per_minute = 600"
        async with fleet(cluster.database("voices"), tmp_path, limits) as servers, load(servers) as well:
            inside = await let_in([Visitor(servers[0].stub), Visitor(servers[1].stub)])
            assert len(inside) == 2
            await servers[0].voices.CreateVoice(ANNA, metadata=KEY)
            await asyncio.to_thread(cluster.stop)
            code, _, _ = await failure(servers[1].voices.GetVoice(GetVoiceRequest(voice_id="anna"), metadata=KEY))
            assert code == grpc.StatusCode.UNAVAILABLE
            spoken = await servers[2].stub.Synthesize(SynthesizeRequest(text="ab"), metadata=KEY)
            assert spoken.stats.sent_ms == 320
            assert await up(servers[2]) == 0
            inside += (more := await let_in([Visitor(servers[2].stub) for _ in range(4)]))
            assert len(more) == 2, "the limit of each server alone"
            without = well[0]
            await eventually(lambda: well[0] >= without + 6, True)
            await asyncio.to_thread(cluster.start)
            for server in servers:
                await eventually(lambda server=server: up(server), 1)  # type: ignore[misc]
            again_with = well[1]
            await eventually(lambda: well[1] >= again_with + 6, True)

            async def known() -> bool:
                try:
                    await servers[1].voices.GetVoice(GetVoiceRequest(voice_id="anna"), metadata=KEY)
                except grpc.aio.AioRpcError:
                    return False
                return True

            await eventually(known, True)
            assert await let_in([Visitor(servers[0].stub)]) == [], "what came in meanwhile is counted"
            for caller in inside:
                await caller.leave()

            async def again() -> int:
                return await number_let_in([Visitor(server.stub) for server in servers])

            await eventually(again, 2)
        await asyncio.to_thread(cluster.stop)


async def up(server: Served) -> float:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.metrics_port)
    try:
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        text = (await reader.read()).decode()
    finally:
        writer.close()
    return float(text.split("\ntts_database_up ")[1].split("\n")[0])


async def test_longer_text_than_was_known_is_paid_later(database: str) -> None:
    caller = Caller("ada", max_text_chars_per_minute=600)
    limits = FleetLimits(FleetTable(database, "a"), lambda is_there: None, Ledger())
    try:
        await limits.prepare(caller, 10)
        limits.take(caller, 10)
        limits.take(caller, 40)  # respelled: 20 of the block, 20 owed
        with pytest.raises(LimitReached):
            limits.take(caller, 20)
        await limits.prepare(caller, 580)
        with pytest.raises(LimitReached):
            limits.take(caller, 580)
    finally:
        limits.close()
