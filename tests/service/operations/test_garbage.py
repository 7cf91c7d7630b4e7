"""Calls leave nothing for the garbage collector to find: everybody's audio waits while it looks at all sessions."""

import asyncio
import gc
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from sonorant.service.listening.ports import SPARE_CALLS
from sonorant.service.operations import garbage
from sonorant.tts.v1 import speak_pb2, text_to_speech_service_pb2
from tests.service.fake_engine import FakeEngine
from tests.service.harness import Served, config, end, eventually, failure, read_all, say, served


async def spoken(server: Served) -> None:
    call = server.stub.Speak()
    for request in (speak_pb2.SpeakRequest(config=config()), say("words "), end(), say("more words"), end()):
        await call.write(request)
    await call.done_writing()
    await read_all(call)


async def given_up(server: Served) -> None:
    call = server.stub.Speak()
    for request in (speak_pb2.SpeakRequest(config={"max_lead_ms": 200}), say("words " * 20), end(), say("more words")):
        await call.write(request)
    for _ in range(3):  # session, started, audio
        await call.read()
    call.cancel()


async def streamed(server: Served) -> None:
    async for _ in server.stub.SynthesizeStream(text_to_speech_service_pb2.SynthesizeStreamRequest(text="words")):
        pass


async def refused(server: Served) -> None:
    await failure(server.stub.Synthesize(text_to_speech_service_pb2.SynthesizeRequest(text="")))


async def malformed(server: Served) -> None:
    synthesize = server.channel.unary_unary("/sonorant.tts.v1.TextToSpeechService/Synthesize")
    await failure(synthesize(b"\xff\xff\xff"))


async def failed(server: Served) -> None:
    call = server.stub.Speak()
    for request in (speak_pb2.SpeakRequest(config=config()), say("words"), speak_pb2.SpeakRequest()):
        await call.write(request)
    await failure(call)


async def given_up_unsaid(server: Served) -> None:
    call = server.stub.Speak()
    await call.initial_metadata()
    call.cancel()


CALLS = [spoken, given_up, given_up_unsaid, streamed, refused, malformed, failed]


@pytest.mark.parametrize("call", CALLS)
async def test_a_call_that_is_over_leaves_no_cycles(
    call: Callable[[Served], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, "LOOK_S", 3600.0)  # nothing is to be collected before it was seen
    engine = FakeEngine()
    async with served(engine) as server:
        await call(server)  # what is made once, and kept
        await eventually(lambda: engine.num_streams, 0)
        gc.collect()
        assert not gc.isenabled()
        try:
            for _ in range(5):
                await call(server)
            await eventually(lambda: engine.num_streams, 0)
            await asyncio.sleep(0.1)  # for calls to be over on this side, too
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            found = Counter(
                type(each).__qualname__
                for each in gc.garbage
                if str(type(each).__module__).startswith("sonorant.service")  # of a type of gRPC it is no string
            )
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
        assert not found


@pytest.mark.parametrize("call", CALLS)
async def test_grpc_keeps_nothing_of_calls_that_are_over(
    call: Callable[[Served], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does keep those whose requests were neither read to the end nor closed, until they were collected twice."""
    monkeypatch.setattr(garbage, "LOOK_S", 3600.0)

    def kept() -> int:
        return sum(type(each).__name__ == "_ServicerContext" for each in gc.get_objects())

    gc.collect()
    before = kept()
    async with served(FakeEngine()) as server:
        for _ in range(5):
            await call(server)
        await eventually(lambda: kept() <= before, True, 5.0)


async def test_calls_that_are_over_hold_no_streams_of_their_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """With grpcio 1.80 they did until they were collected, and the server refused calls."""
    monkeypatch.setattr(garbage, "LOOK_S", 3600.0)
    async with served(FakeEngine(), max_sessions=1) as server:
        for _ in range(2 * SPARE_CALLS):
            await streamed(server)


async def test_all_generations_are_collected_only_while_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "LOOK_S", 0.001)
    monkeypatch.setattr(garbage, "YOUNG_S", 0.001)
    monkeypatch.setattr(garbage, "IDLE_S", 0.0)
    generations: list[int] = []

    def on_collection(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            generations.append(info["generation"])

    is_idle = False
    collecting = asyncio.create_task(garbage.collect_garbage(lambda: is_idle))
    await eventually(gc.isenabled, False)
    gc.callbacks.append(on_collection)
    try:
        await eventually(lambda: len(generations) > 3, True)
        assert set(generations) == {0}
        is_idle = True
        await eventually(lambda: 2 in generations, True)
        collecting.cancel()
        await asyncio.wait([collecting])
    finally:
        gc.callbacks.remove(on_collection)
    assert gc.isenabled(), "as before"


async def test_many_young_objects_are_looked_at_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long a collection takes follows from their number."""
    monkeypatch.setattr(garbage, "LOOK_S", 0.001)
    monkeypatch.setattr(garbage, "YOUNG_S", 3600.0)
    numbers: list[int] = []

    def on_collection(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            numbers.append(gc.get_count()[0])

    collecting = asyncio.create_task(garbage.collect_garbage(lambda: False))
    await eventually(gc.isenabled, False)
    gc.callbacks.append(on_collection)
    try:
        kept: list[list[int]] = []
        while len(numbers) < 3:
            kept += ([] for _ in range(100))
            assert gc.get_count()[0] < 2 * garbage.MOST_YOUNG, "they wait for the clock"
            await asyncio.sleep(0.001)
        collecting.cancel()
        await asyncio.wait([collecting])
    finally:
        gc.callbacks.remove(on_collection)
