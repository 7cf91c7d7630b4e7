"""How soon a cancel is felt, as a table: `python -m tests.measure.barge_in`.

A server with the built-in voice in real worker processes, all of whose slots speak; one stream is interrupted again and
again, and another waits for a slot. From the cancel's departure at the client to the last audio of the utterance there
(0 = none came any more), to its `done`, and to the moment when its slot went to the stream that waits, as that one's
latency budget tells.
"""

import argparse
import asyncio
import random
import time
from contextlib import AsyncExitStack

import numpy as np
import uvloop

from sonorant.engine import BUILTIN_VOICE_DIR, EngineConfig, EngineState, start_here
from sonorant.service.operations.latency import parts
from sonorant.tts.v1 import speak_pb2
from tests.service.harness import Served, cancel, eventually, say, served

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


async def interrupt(server: Served, rng: random.Random) -> tuple[float, float, float]:
    """Seconds from the cancel to the last audio, to `done`, and to the slot of the next."""
    call, waiting = server.stub.Speak(), server.stub.Speak()
    await call.write(speak_pb2.SpeakRequest(config=SETTINGS))
    await call.write(say(TEXT))
    started = False
    speaking_s = time.monotonic() + 0.3 + rng.random()
    cancelled_s = last_audio_s = 0.0
    while (response := await call.read()).WhichOneof("payload") != "done":
        if not response.HasField("audio"):
            continue
        last_audio_s = time.monotonic()
        if not started:
            started = True
            await waiting.write(speak_pb2.SpeakRequest(config=SETTINGS))
            await waiting.write(say(TEXT))
        if not cancelled_s and last_audio_s > speaking_s:
            cancelled_s = last_audio_s = time.monotonic()
            await call.write(cancel())
    done_s = time.monotonic()
    while not (response := await waiting.read()).HasField("audio"):
        pass
    budget = response.audio.budget
    since_slot_ms = sum(ms for part, ms in parts(budget) if part not in ("text", "queue"))
    slot_s = time.monotonic() - since_slot_ms / 1000
    for each in (call, waiting):
        each.cancel()
    return last_audio_s - cancelled_s, done_s - cancelled_s, slot_s - cancelled_s


async def measure(num_others: int, num_rounds: int) -> None:
    async with AsyncExitStack() as stack:
        config = EngineConfig.of(model=BUILTIN_VOICE_DIR, num_slots=num_others + 1, cpu_threads=1)
        engine = await start_here([config])
        stack.push_async_callback(engine.close)
        await eventually(lambda: engine.state, EngineState.READY)
        server = await stack.enter_async_context(served(engine))
        others = [asyncio.create_task(speak_on(server)) for _ in range(num_others)]
        rng = random.Random(1)
        rounds = [await interrupt(server, rng) for _ in range(num_rounds)]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
    for name, column in zip(("last audio", "done", "next stream"), zip(*rounds, strict=True), strict=True):
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
