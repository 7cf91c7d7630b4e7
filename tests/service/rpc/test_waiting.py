"""Calls that wait for a place in a full engine, over gRPC."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import grpc
import pytest

from sonorant.tts.v1 import speak_pb2, synthesis_pb2
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeRequest, SynthesizeStreamRequest
from tests.service.fake_engine import FakeEngine
from tests.service.harness import (
    Served,
    Transcript,
    config,
    end,
    eventually,
    failure,
    read_all,
    read_until,
    say,
    served,
)
from tests.service.scraping import SIDE_PORT, scrape

COMPLETED = synthesis_pb2.FINISH_REASON_COMPLETED
PATIENT: dict[str, Any] = {"max_wait_ms": 20_000}
BATCH: dict[str, Any] = {"max_wait_ms": 20_000, "priority": synthesis_pb2.PRIORITY_BATCH}


@asynccontextmanager
async def full() -> AsyncIterator[tuple[FakeEngine, Served, Any]]:
    """A server with one place, and the call that has it until it is cancelled."""
    engine = FakeEngine(frame_s=0.02, max_streams=1)
    async with served(engine, **SIDE_PORT) as server:
        taking = server.stub.SynthesizeStream(SynthesizeStreamRequest(text="a" * 1000))
        await taking.read()
        yield engine, server, taking


async def patient_session(server: Served, text: str, scheduling: dict[str, Any]) -> "asyncio.Task[Transcript]":
    """One that waits for its place."""
    call, told = server.stub.Speak(), Transcript()
    opening = config()
    opening.scheduling.CopyFrom(synthesis_pb2.Scheduling(**scheduling))
    opening.opening.CopyFrom(speak_pb2.Opening(text=text, end=True))
    await call.write(speak_pb2.SpeakRequest(config=opening))
    await call.done_writing()
    await read_until(call, told, "queued")
    return asyncio.create_task(read_all(call, told))


async def num_waiting(server: Served) -> float:
    return (await scrape(server))["tts_waiting_utterances"]


async def test_without_patience_a_call_is_refused_at_once() -> None:
    async with full() as (_, server, _):
        code, message, details = await failure(server.stub.Synthesize(SynthesizeRequest(text="b")))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED and "in use" in message
        assert details["RetryInfo"].retry_delay.ToTimedelta().total_seconds() >= 0.5


async def test_a_call_waits_for_a_place_as_long_as_it_asked_and_no_longer() -> None:
    async with full() as (_, server, _):
        began_s = asyncio.get_running_loop().time()
        request = SynthesizeRequest(text="b", scheduling={"max_wait_ms": 300})
        code, message, details = await failure(server.stub.Synthesize(request))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED and "within 0.3 s" in message
        assert asyncio.get_running_loop().time() - began_s >= 0.3
        assert details["ErrorInfo"].reason == "ENGINE_OVERLOADED" and "RetryInfo" in details


async def test_a_place_that_becomes_free_goes_to_those_that_wait() -> None:
    async with full() as (_, server, taking):
        waiting = [
            asyncio.ensure_future(server.stub.Synthesize(SynthesizeRequest(text="b", scheduling=PATIENT)))
            for _ in range(3)
        ]
        await eventually(partial(num_waiting, server), 3)
        taking.cancel()
        async with asyncio.timeout(60):
            assert [response.reason for response in await asyncio.gather(*waiting)] == [COMPLETED] * 3


async def test_clients_are_told_how_many_go_first() -> None:
    async with full() as (_, server, taking):
        first = server.stub.SynthesizeStream(SynthesizeStreamRequest(text="b", scheduling=PATIENT))
        queued = (await first.read()).queued
        assert (queued.num_ahead, queued.expected_wait_ms > 0) == (0, True)
        second, told = server.stub.Speak(), Transcript()
        opening = config()
        opening.scheduling.max_wait_ms = 20_000
        await second.write(speak_pb2.SpeakRequest(config=opening))
        await second.write(say("c"))
        await second.write(end())
        await read_until(second, told, "queued")
        assert told.responses[-1].queued.num_ahead == 1 and told.responses[-1].utterance_id == "u1"
        taking.cancel()
        await second.done_writing()
        async with asyncio.timeout(60):
            await read_all(second, told)
        assert told.done["u1"].reason == COMPLETED
        kinds = [kind for _, kind in told.kinds]
        assert kinds[:3] == ["session", "queued", "started"] and kinds[-1] == "done"


async def test_newcomers_do_not_overtake_those_that_wait() -> None:
    async with full() as (engine, server, _):
        waiting = server.stub.SynthesizeStream(SynthesizeStreamRequest(text="b", scheduling=PATIENT))
        await waiting.read()
        engine.max_streams = 2  # a place is free, and the one that waits has not tried yet
        code, message, _ = await failure(server.stub.Synthesize(SynthesizeRequest(text="c")))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED and "in use" in message
        while not (response := await waiting.read()).HasField("done"):
            assert response.WhichOneof("payload") in ("started", "audio")
        assert response.done.reason == COMPLETED


async def test_who_hangs_up_while_waiting_leaves_the_queue() -> None:
    async with full() as (engine, server, _):
        waiting = server.stub.SynthesizeStream(SynthesizeStreamRequest(text="b", scheduling=PATIENT))
        await waiting.read()
        waiting.cancel()
        await eventually(lambda: num_waiting(server), 0)
        engine.max_streams = 2
        response = await asyncio.wait_for(server.stub.Synthesize(SynthesizeRequest(text="c")), 60)
        assert response.reason == COMPLETED and engine.num_opened == 2


async def test_background_utterances_go_last() -> None:
    async with full() as (engine, server, taking):
        batch = await patient_session(server, "b", BATCH)
        interactive = await patient_session(server, "c", PATIENT)
        taking.cancel()
        async with asyncio.timeout(60):
            await asyncio.gather(batch, interactive)
        assert engine.background == [False, False, True]


async def test_a_listener_who_has_audio_goes_ahead_of_new_ones_and_need_not_ask() -> None:
    engine = FakeEngine(max_streams=1)
    async with served(engine, **SIDE_PORT) as server:
        session, told = server.stub.Speak(), Transcript()
        opening = config()
        opening.max_lead_ms = 60_000
        await session.write(speak_pb2.SpeakRequest(config=opening))
        await session.write(say("a" * 100, "one"))
        await session.write(end("one"))
        await read_until(session, told, "done")  # many seconds that are still to be heard
        engine.frame_s = 0.02
        taking = server.stub.SynthesizeStream(SynthesizeStreamRequest(text="a" * 1000))
        await taking.read()
        newcomer = await patient_session(server, "b", PATIENT)
        await session.write(say("c" * 10, "two"))
        await session.write(end("two"))
        await eventually(lambda: num_waiting(server), 2)
        taking.cancel()
        await session.done_writing()
        async with asyncio.timeout(60):
            await read_all(session, told)
        assert told.done["two"].reason == COMPLETED and ("two", "queued") not in told.kinds
        assert not newcomer.done()
        await asyncio.wait_for(newcomer, 60)


@pytest.mark.parametrize(
    ("scheduling", "field"), [({"max_wait_ms": 600_001}, "max_wait_ms"), ({"priority": 9}, "priority")]
)
async def test_what_cannot_be_is_refused(scheduling: dict[str, int], field: str) -> None:
    async with served(FakeEngine()) as server:
        code, _, details = await failure(server.stub.Synthesize(SynthesizeRequest(text="a", scheduling=scheduling)))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert details["BadRequest"].field_violations[0].field == f"scheduling.{field}"


async def test_a_session_that_speaks_on_keeps_its_place() -> None:
    """Newcomers ask all the time. Utterances whose text is there when the one before ends are spoken all the same."""
    engine = FakeEngine(frame_s=0.002, max_streams=1)
    async with served(engine) as server:
        session, told = server.stub.Speak(), Transcript()
        await session.write(speak_pb2.SpeakRequest(config=config()))
        await session.write(say("a" * 20, "0"))
        await session.write(end("0"))
        await read_until(session, told, "started")

        async def knock() -> None:
            while True:
                request = SynthesizeRequest(text="b" * 50, config={"sampling": {"seed": 1}})
                assert (await failure(server.stub.Synthesize(request)))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED

        knocking = [asyncio.create_task(knock()) for _ in range(4)]
        for number in range(1, 8):
            await session.write(say("a" * 20, str(number)))
            await session.write(end(str(number)))
            await read_until(session, told, "started", str(number))
        for task in knocking:
            task.cancel()
        await session.done_writing()
        await read_all(session, told)
        assert all(done.reason == COMPLETED for done in told.done.values()) and len(told.done) == 8
        assert [task.exception() for task in await gone(knocking) if not task.cancelled()] == []


async def gone(tasks: list["asyncio.Task[None]"]) -> list["asyncio.Task[None]"]:
    await asyncio.wait(tasks)
    return tasks
