"""What the service costs beside the engine, as a table: `python -m tests.measure.front_end_cost [--streams 200]`.

Paced `Speak` sessions on a server in this process, over an engine that has its audio at once; the clients are in a
process of their own. Cost is CPU time of this process, less what the engine's stand-in takes:

    frames      each session hears one long utterance; per 80 ms frame
    utterances  each session hears one utterance of 12 frames after another; per utterance, beside its frames
    sessions    sessions are opened and closed, and say nothing; per session

Added delay is how late a frame arrives against the pace of its stream, which has its first frames as the mark. The
longest stall is by how much a timer of the event loop was late, which on a busy machine is also the machine's; the
longest collection is CPU time of the garbage collector alone.
"""

import argparse
import asyncio
import gc
import itertools
import json
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
import uvloop

from sonorant.client.transport.silence_limits import max_silence_for_lead_ms
from sonorant.service.listening.accepting import NUM_ACCEPTORS
from sonorant.service.session.config import DEFAULT_LEAD_MS
from sonorant.tts.v1 import speak_pb2
from tests.service.fake_engine import FakeEngine
from tests.service.harness import Stub, end, say, served

FRAME_S = 0.08
STREAMS_PER_CHANNEL = 50
LONG = "words " * 300
SHORT = "words "  # 12 frames
OPENERS = 20  # of sessions that say nothing
PROBE_S = 0.005


@dataclass(slots=True)
class Pauses:
    """The longest, in seconds."""

    stall_s: float = 0.0
    collection_s: float = 0.0


@asynccontextmanager
async def watched() -> AsyncIterator[Pauses]:
    pauses, begun_s = Pauses(), 0.0

    def on_collection(phase: str, _info: object) -> None:
        nonlocal begun_s
        if phase == "start":
            begun_s = time.thread_time()
        else:
            pauses.collection_s = max(pauses.collection_s, time.thread_time() - begun_s)

    async def probe() -> None:
        while True:
            due_s = time.monotonic() + PROBE_S
            await asyncio.sleep(PROBE_S)
            pauses.stall_s = max(pauses.stall_s, time.monotonic() - due_s)

    gc.callbacks.append(on_collection)
    probing = asyncio.create_task(probe())
    try:
        yield pauses
    finally:
        probing.cancel()
        gc.callbacks.remove(on_collection)


async def measure(
    what: str, num_streams: int, seconds: float, lead_ms: int, us_per_frame: float, *, resumable: bool = False
) -> float:
    """Prints a row, returns its cost in microseconds. `us_per_frame` is not counted again."""
    max_sessions = num_streams + OPENERS
    engine = FakeEngine(max_streams=2 * num_streams)  # the next utterance is opened while one is heard
    async with served(engine, acceptors=NUM_ACCEPTORS, max_sessions=max_sessions) as server, watched() as pauses:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.measure.front_end_cost", "--listen-to", server.address, "--what", what,
            "--streams", str(num_streams), "--seconds", str(seconds), "--lead-ms", str(lead_ms),
            *(["--resumable"] if resumable else []),
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert child.stdout is not None
        marks = []
        for _ in range(2):  # the child says when all its streams are up, and when it has seen enough
            await child.stdout.readline()
            marks.append((time.process_time(), engine.busy_s, engine.num_opened))
            if len(marks) == 1:
                pauses.stall_s = pauses.collection_s = 0.0
        heard = json.loads(await child.stdout.readline())
        await child.wait()
    (cpu_before, busy_before, opened_before), (cpu_after, busy_after, opened_after) = marks
    cpu_s = cpu_after - cpu_before
    own_us = (cpu_s - (busy_after - busy_before)) * 1e6
    frames, late_ms = heard["frames"], heard["late_ms"]
    count = {"frames": frames, "utterances": opened_after - opened_before, "sessions": heard["sessions"]}[what]
    if not count:
        sys.exit(f"no {what} in {seconds:g} s: take more with --seconds or --streams")
    cost_us = (own_us - us_per_frame * frames) / count
    print(
        f"{what:>10} {num_streams:>8} {lead_ms:>8} {count:>8.0f} {cpu_s / seconds:>10.2f} {cost_us:>8.0f} "
        f"{late_ms[0]:>9.1f} {late_ms[1]:>9.1f} {pauses.stall_s * 1000:>9.1f} {pauses.collection_s * 1000:>13.1f}",
        flush=True,
    )
    return cost_us


def resuming(lead_ms: int, *, resumable: bool) -> dict[str, Any]:
    """Fields of a SpeakConfig, with those that our client sets for resuming if `resumable`."""
    config: dict[str, Any] = {"max_lead_ms": lead_ms}
    if resumable:
        config |= {"resumable": True, "pack_codes": True, "max_silence_ms": max_silence_for_lead_ms(lead_ms)}
    return config


async def listen(address: str, what: str, num_streams: int, seconds: float, lead_ms: int, resumable: bool) -> None:
    loop = asyncio.get_running_loop()
    num_tasks = OPENERS if what == "sessions" else num_streams
    arrivals: list[list[tuple[float, float]]] = [[] for _ in range(num_tasks)]  # when, up to where, in seconds
    num_up, num_sessions = itertools.count(1), itertools.count()
    all_up = asyncio.Event()
    config = speak_pb2.SpeakRequest(config=resuming(lead_ms, resumable=resumable))

    async def hear(channel: grpc.aio.Channel, mine: list[tuple[float, float]]) -> None:
        call = Stub(channel).Speak()
        await call.write(config)
        text = LONG if what == "frames" else SHORT
        await call.write(say(text))
        await call.write(end())
        up_to = 0
        while (response := await call.read()) is not grpc.aio.EOF:
            if response.HasField("audio"):
                if not mine and next(num_up) == num_streams:
                    all_up.set()
                up_to += response.audio.num_samples
                mine.append((loop.time(), up_to / 24_000))
            elif response.HasField("started") and what == "utterances":
                await call.write(say(text))
                await call.write(end())

    async def knock(channel: grpc.aio.Channel, _mine: object) -> None:
        all_up.set()
        while True:
            call = Stub(channel).Speak()
            await call.write(config)
            await call.read()
            await call.done_writing()
            assert await call.read() is grpc.aio.EOF
            next(num_sessions)

    channels = [grpc.aio.insecure_channel(address, (("n", n),)) for n in range(-(-num_tasks // STREAMS_PER_CHANNEL))]
    tasks = []
    for index, mine in enumerate(arrivals):
        act = knock if what == "sessions" else hear
        tasks.append(asyncio.create_task(act(channels[index // STREAMS_PER_CHANNEL], mine)))
        await asyncio.sleep(FRAME_S * 1.37 / num_streams)
    await all_up.wait()
    await asyncio.sleep(lead_ms / 1000 + 0.5)
    print("up", flush=True)
    start_s, sessions_before = loop.time(), next(num_sessions)
    await asyncio.sleep(seconds)
    print("enough", flush=True)
    seconds_heard, late_ms = 0.0, [] if what != "sessions" else [0.0]
    for mine in arrivals:
        counted = [each for each in mine if each[0] >= start_s]
        if counted:
            seconds_heard += counted[-1][1] - counted[0][1]
            on_time_s = min(arrived_s - up_to_s for arrived_s, up_to_s in counted)
            late_ms += [(arrived_s - up_to_s - on_time_s) * 1000 for arrived_s, up_to_s in counted]
    heard = {
        "frames": seconds_heard / FRAME_S,
        "sessions": next(num_sessions) - sessions_before - 1,
        "late_ms": list(np.percentile(late_ms, (50, 99))),
    }
    print(json.dumps(heard), flush=True)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for channel in channels:
        await channel.close()


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, nargs="+", default=[200], metavar="N")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--lead-ms", type=int, default=DEFAULT_LEAD_MS)
    parser.add_argument("--listen-to", metavar="HOST:PORT", help=argparse.SUPPRESS)
    parser.add_argument("--what", default="frames", help=argparse.SUPPRESS)
    parser.add_argument("--resumable", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.listen_to:
        uvloop.run(listen(args.listen_to, args.what, args.streams[0], args.seconds, args.lead_ms, args.resumable))
        return
    print("   cost of  streams  lead ms    count  cores used  us each  p50 late  p99 late  stall ms  collection ms")
    for num_streams in args.streams:
        us_per_frame = 0.0
        for what in ("frames", "utterances", "sessions"):
            cost_us = uvloop.run(measure(what, num_streams, args.seconds, args.lead_ms, us_per_frame))
            if what == "frames":
                us_per_frame = cost_us


if __name__ == "__main__":
    main()
