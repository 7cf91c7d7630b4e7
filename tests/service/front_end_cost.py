"""What the service costs beside the engine, as a table: `python -m tests.service.front_end_cost [--streams 200]`.

Paced `Speak` sessions on a server in this process, over an engine that has its audio at once; the clients are in a
process of their own. Cost is CPU time of this process per 80 ms frame, less what the engine's stand-in takes. Added
delay is how late a frame arrives against the pace of its stream, which has its first frames as the mark.
"""

import argparse
import asyncio
import itertools
import json
import sys
import time
from collections.abc import Sequence

import grpc
import numpy as np
import uvloop

from service.requests import DEFAULT_LEAD_MS
from sonorant.tts.v1 import speak_pb2
from tests.service.fake_engine import FakeEngine
from tests.service.harness import Stub, end, say, served

FRAME_S = 0.08
STREAMS_PER_CHANNEL = 50
WORD = "words "


async def measure(num_streams: int, seconds: float, lead_ms: int) -> None:
    engine = FakeEngine(max_streams=num_streams)
    async with served(engine, max_sessions=num_streams) as server:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.service.front_end_cost", "--listen-to", server.address,
            "--streams", str(num_streams), "--seconds", str(seconds), "--lead-ms", str(lead_ms),
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert child.stdout is not None
        marks = []
        for _ in range(2):  # the child says when all its streams are up, and when it has seen enough
            await child.stdout.readline()
            marks.append((time.process_time(), engine.busy_s, engine.frames_made))
        heard = json.loads(await child.stdout.readline())
        await child.wait()
    (cpu_before, busy_before, _), (cpu_after, busy_after, _) = marks
    cpu_s = cpu_after - cpu_before
    own_s = cpu_s - (busy_after - busy_before)
    frames, late_ms = heard["frames"], heard["late_ms"]
    print(
        f"{num_streams:>8} {lead_ms:>8} {frames:>8.0f} {cpu_s / seconds:>10.2f} {own_s / frames * 1e6:>12.0f} "
        f"{late_ms[0]:>9.1f} {late_ms[1]:>9.1f}"
    )


async def listen(address: str, num_streams: int, seconds: float, lead_ms: int) -> None:
    loop = asyncio.get_running_loop()
    arrivals: list[list[tuple[float, float]]] = [[] for _ in range(num_streams)]  # when, up to where, in seconds
    num_up = itertools.count(1)
    all_up = asyncio.Event()

    async def hear(channel: grpc.aio.Channel, mine: list[tuple[float, float]]) -> None:
        call = Stub(channel).Speak()
        await call.write(speak_pb2.SpeakRequest(config={"max_lead_ms": lead_ms}))
        await call.write(say(WORD * 300))
        await call.write(end())
        up_to = 0
        while (response := await call.read()) is not grpc.aio.EOF:
            if response.HasField("audio"):
                if not mine and next(num_up) == num_streams:
                    all_up.set()
                up_to += response.audio.num_samples
                mine.append((loop.time(), up_to / 24_000))

    channels = [grpc.aio.insecure_channel(address, (("n", n),)) for n in range(-(-num_streams // STREAMS_PER_CHANNEL))]
    tasks = []
    for index, mine in enumerate(arrivals):
        tasks.append(asyncio.create_task(hear(channels[index // STREAMS_PER_CHANNEL], mine)))
        await asyncio.sleep(FRAME_S * 1.37 / num_streams)
    await all_up.wait()
    await asyncio.sleep(lead_ms / 1000 + 0.5)
    print("up", flush=True)
    start_s = loop.time()
    await asyncio.sleep(seconds)
    print("enough", flush=True)
    seconds_heard, late_ms = 0.0, []
    for mine in arrivals:
        counted = [each for each in mine if each[0] >= start_s]
        seconds_heard += counted[-1][1] - counted[0][1]
        on_time_s = min(arrived_s - up_to_s for arrived_s, up_to_s in counted)
        late_ms += [(arrived_s - up_to_s - on_time_s) * 1000 for arrived_s, up_to_s in counted]
    print(
        json.dumps({"frames": seconds_heard / FRAME_S, "late_ms": list(np.percentile(late_ms, (50, 99)))}), flush=True
    )
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
    args = parser.parse_args(argv)
    if args.listen_to:
        uvloop.run(listen(args.listen_to, args.streams[0], args.seconds, args.lead_ms))
        return
    print(" streams  lead ms   frames  cores used  us per frame  p50 late  p99 late")
    for num_streams in args.streams:
        uvloop.run(measure(num_streams, args.seconds, args.lead_ms))


if __name__ == "__main__":
    main()
