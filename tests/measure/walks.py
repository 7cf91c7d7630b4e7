"""How many functions in how many files four walks through a server take: `python -m tests.measure.walks`.

First text: from the first text of a session until its `OpenStream` is on ring A, and, as it was counted first, all that
runs within 2 ms. Later text: until its `PushText` is on ring A. Chunk: from the records of ring C until gRPC has the
audio. Death: from the news of a worker's death until `OpenStream` is on the ring of the new worker, and, as it was
counted first, with all that the audio under way needs meanwhile; only the engine counts there.
Owner and server process run in one process, so that both are seen. A session has spoken before, so that what is made
once is made. Constructors, lambdas, comprehensions and other functions within functions do not count. `--list` names
the functions.
"""

import argparse
import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any

import grpc

from sonorant.engine import EngineHere, EngineState, sized, start_here
from sonorant.service import server
from sonorant.service.config import parse_args
from sonorant.tts.v1.speak_pb2 import SpeakConfig, SpeakRequest
from sonorant.tts.v1.text_to_speech_service_pb2_grpc import TextToSpeechServiceStub

SETTINGS = ["--listen", "127.0.0.1:0", "--device", "cpu"]
FIRST_TEXT_S, LATER_S, STEP_S = 0.002, 1.5, 0.02
TEXT = "Hello there, this is a rather long text, so that a worker can die in the middle of it, and it goes on and on."


class Walk:
    """Which functions of ours run while this is open, from one of this name on until another one after that."""

    def __init__(self, *roots: str, but: str = "", begin: str = "", after: str = "", end: str = "") -> None:
        """`end` ends the walk once `after` is in it. Files in `but` do not count, nor does what a timer collects."""
        self._roots, self._but = roots, (but, "service/operations/garbage.py")
        self._begin, self._after, self._end = begin, after, end
        self.is_over = False
        self.begins_anew = False  # if `end` comes before `after`
        self.functions: dict[tuple[str, str], None] = {}  # file and name, in order

    def __enter__(self) -> "Walk":
        sys.setprofile(self._on_event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _on_event(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or self.is_over or "/sonorant/" not in (file := frame.f_code.co_filename):
            return
        file, name = file.split("/sonorant/", 1)[1], frame.f_code.co_qualname
        if not file.startswith(self._roots) or file in self._but or re.search("<(locals|lambda)>|__init__", name):
            return
        if self.functions or not self._begin or name == self._begin:
            self.functions[file, name] = None
            if name == self._end:
                self.is_over = self.has(self._after)
                if self.begins_anew and not self.is_over:
                    self.functions.clear()

    def has(self, name: str) -> bool:
        return any(each == name for _, each in self.functions)


@asynccontextmanager
async def served() -> AsyncIterator[tuple[str, EngineHere]]:
    """The address of a server in this process, and its engine."""
    config = parse_args(SETTINGS, {})
    config = config.with_sizes(await asyncio.to_thread(sized, config.engines))
    drain, port, up = asyncio.Event(), asyncio.get_running_loop().create_future(), asyncio.Event()
    engines: list[EngineHere] = []

    def announce(event: str, **more: Any) -> None:
        if event == "listening":
            port.set_result(more["port"])
        if event == "serving":
            up.set()

    @asynccontextmanager
    async def start(on_state: Callable[[EngineState], None]) -> AsyncIterator[EngineHere]:
        engines.append(await start_here(config.engines, on_state))
        try:
            yield engines[0]
        finally:
            await engines[0].close()

    serving = asyncio.create_task(server.serve(config, start, drain, announce))
    await up.wait()
    try:
        yield f"127.0.0.1:{await port}", engines[0]
    finally:
        drain.set()
        await serving


async def speak(stub: Any, max_lead_ms: int = 500) -> Any:
    call = stub.Speak()
    await call.write(SpeakRequest(config=SpeakConfig(max_lead_ms=max_lead_ms)))
    await call.read()
    await asyncio.sleep(STEP_S)  # the end of that write is not a part of any walk
    return call


SERVER = ("service/", "engine/", "logs/")
TO_RING_A = {"after": "RingOutbox.try_publish", "end": "Doorbell.ring"}
# The queue is the service's own, which it has from the engine.
TO_RING_A_AGAIN = {
    "but": "engine/fair_queue.py",
    "begin": "WorkerPair._died",
    "after": "EngineStream.begin",
    "end": "Doorbell.ring",
}


async def first_text(stub: Any, **end: str) -> Walk:
    call = await speak(stub)
    with Walk(*SERVER, **end) as walk:
        await call.write(SpeakRequest(text="Hello there, this is "))
        await asyncio.sleep(FIRST_TEXT_S)
        while end and not walk.is_over:  # noqa: ASYNC110
            await asyncio.sleep(FIRST_TEXT_S)
    assert walk.has("RingOutbox.try_publish"), "the text was not there yet; run this on a quiet machine"
    call.cancel()
    return walk


async def later_text(stub: Any) -> Walk:
    call = await speak(stub)
    await call.write(SpeakRequest(text="Hello there, this is "))
    await asyncio.sleep(LATER_S)
    with Walk(*SERVER, **TO_RING_A) as walk:
        await call.write(SpeakRequest(text="a longer text "))
        while not walk.is_over:  # noqa: ASYNC110
            await asyncio.sleep(STEP_S)
    call.cancel()
    return walk


async def spoken(stub: Any, max_lead_ms: int = 500) -> Any:
    call = await speak(stub, max_lead_ms)
    await call.write(SpeakRequest(text=TEXT))
    await call.write(SpeakRequest(end={}))
    return call


async def chunk(stub: Any) -> Walk:
    call = await spoken(stub, max_lead_ms=0)  # with a lead, audio that is there waits for its time
    await until_heard(call, 3)
    walk = Walk(*SERVER, begin="Traffic._receive", after="Speech.take", end="CallRecord.response")
    walk.begins_anew = True
    with walk:
        while not walk.is_over:
            await until_heard(call, 1)
    call.cancel()
    return walk


async def until_heard(call: Any, num_chunks: int) -> None:
    while num_chunks:
        response = await call.read()
        assert response is not grpc.aio.EOF, "the speech ended before its walk was seen; run this again"
        num_chunks -= response.HasField("audio")


async def death(stub: Any, engine: EngineHere, **window: str) -> Walk:
    while engine.state is not EngineState.READY:  # noqa: ASYNC110
        await asyncio.sleep(STEP_S)
    call = await spoken(stub)
    await until_heard(call, 3)
    workers = engine.owner._pairs[0].workers
    assert workers is not None
    with Walk("engine/", **window) as walk:
        os.kill(workers.children[0].pid, signal.SIGKILL)
        while not walk.has("EngineStream.begin"):  # noqa: ASYNC110
            await asyncio.sleep(STEP_S)
        await asyncio.sleep(STEP_S)
    call.cancel()
    return walk


async def main(arguments: argparse.Namespace) -> None:
    async with served() as (address, engine), grpc.aio.insecure_channel(address) as channel:
        stub = TextToSpeechServiceStub(channel)
        call = await spoken(stub)
        await until_heard(call, 3)
        call.cancel()
        walks = {
            "first text to ring A": await first_text(stub, **TO_RING_A),
            "first text, 2 ms": await first_text(stub),
            "later text to ring A": await later_text(stub),
            "chunk from ring C to gRPC": await chunk(stub),
            "death": await death(stub, engine, **TO_RING_A_AGAIN),
            "death, with all that runs meanwhile": await death(stub, engine),
        }
        for name, walk in walks.items():
            files = {file for file, _ in walk.functions}
            print(f"{name}: {len(walk.functions)} functions in {len(files)} files")
            for file, function in walk.functions if arguments.list else ():
                print("   ", file, function)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true")
    asyncio.run(main(parser.parse_args()))
