"""How soon a cancel is felt, as a table: `python -m tests.service.barge_in`.

A server with the built-in voice in real worker processes; some streams speak all the time, one is interrupted again and
again. Silence: from the cancel's departure at the client to the last audio of the utterance there, and to its `done`.
Slot free: to the moment when the engine has the end of its stream back, which is after its slot was given to others.
"""

import argparse
import asyncio
import random
import time
from contextlib import AsyncExitStack

import numpy as np
import uvloop

from engine import BUILTIN_VOICE_DIR, Engine, EngineConfig
from sonorant.tts.v1 import speak_pb2
from tests.service.harness import Served, cancel, say, served

TEXT = "This is a long story about a man and his dog, who walked down the street every day. " * 6
SETTINGS = speak_pb2.SpeakConfig(max_lead_ms=500, synthesis={"sampling": {"ignore_eos": True, "max_frames": 1000}})


async def speak_on(server: Served) -> None:
    while True:
        call = server.stub.Speak()
        await call.write(speak_pb2.SpeakRequest(config=SETTINGS))
        await call.write(say(TEXT))
        await call.done_writing()
        async for _ in call:
            pass


async def interrupt(server: Served, engine: Engine, rng: random.Random) -> tuple[float, float, float]:
    """Seconds from the cancel to the last audio (0 = none came), to `done`, and to the end of the stream."""
    call = server.stub.Speak()
    await call.write(speak_pb2.SpeakRequest(config=SETTINGS))
    await call.write(say(TEXT))
    live_before = set(engine._streams)
    cancelled_s = last_audio_s = 0.0
    speaking = asyncio.get_running_loop().time() + 0.3 + rng.random()
    mine = 0
    while (response := await call.read()).WhichOneof("payload") != "done":
        if not response.HasField("audio"):
            continue
        last_audio_s = time.monotonic()
        mine = mine or max(set(engine._streams) - live_before or engine._streams)
        if not cancelled_s and asyncio.get_running_loop().time() > speaking:
            cancelled_s = last_audio_s = time.monotonic()
            freed = asyncio.create_task(until_gone(engine, mine))
            await call.write(cancel())
    done_s = time.monotonic()
    free_s = await freed
    call.cancel()
    return last_audio_s - cancelled_s, done_s - cancelled_s, free_s - cancelled_s


async def until_gone(engine: Engine, stream_id: int) -> float:
    while stream_id in engine._streams:  # noqa: ASYNC110  nothing tells it
        await asyncio.sleep(0.0005)
    return time.monotonic()


async def measure(num_others: int, num_rounds: int) -> None:
    async with AsyncExitStack() as stack:
        engine = await Engine.start(EngineConfig(model=BUILTIN_VOICE_DIR, num_slots=16, cpu_threads=1))
        stack.push_async_callback(engine.close)
        server = await stack.enter_async_context(served(engine))
        others = [asyncio.create_task(speak_on(server)) for _ in range(num_others)]
        rng = random.Random(1)
        rounds = [await interrupt(server, engine, rng) for _ in range(num_rounds)]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
    for name, column in zip(("last audio", "done", "slot free"), zip(*rounds, strict=True), strict=True):
        p50, p99 = np.percentile(np.array(column) * 1000, (50, 99))
        print(f"{num_others + 1:>8} {name:<12} {p50:>8.1f} {p99:>8.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 4], metavar="N", help="speaking at the same time")
    parser.add_argument("--rounds", type=int, default=30)
    args = parser.parse_args()
    print(" streams cancel to        p50 ms   p99 ms")
    for num_streams in args.streams:
        uvloop.run(measure(num_streams - 1, args.rounds))


if __name__ == "__main__":
    main()
