"""What listeners notice when many others come back at once: `python -m tests.measure.storm [--resuming 500]`.

The server runs already (`--server`), or is one of its own with the built-in voice. `sonorant bench` listens directly
(`--listeners`); as many sessions as `--resuming` says listen through proxies, in processes of a hundred sessions. All
connections of the proxies are cut at the same moment, so that all of these sessions resume at once. Told are, of these,
the utterances completed, and for how long they had no server and nothing to play; of the others, the table of the
benchmark, with the longest gap.
"""

import argparse
import asyncio
import json
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass

import numpy as np
import uvloop

from sonorant.client import AudioChunk, Resumed, SpeechClient, UtteranceDone, synthesis_config
from sonorant.client.local_server import local_server
from tests.cutting_proxy import CuttingProxy

TEXT = "All of us were cut off at the same time, and all of us have come back to hear the rest of it."
BYTES_PER_S = 48_000
SESSIONS_PER_CLIENT = 50
SESSIONS_PER_PROCESS = 100


@dataclass
class Told:
    num_done: int = 0
    resumed_s: float = 0.0  # without a server
    dry_s: float = 0.0  # without anything to play


async def session(client: SpeechClient, number: int, num_frames: int, begun: asyncio.Barrier, told: Told) -> None:
    """One utterance that lasts until well after the cut."""
    played_until_s = 0.0
    config = synthesis_config(seed=number, max_frames=num_frames, min_frames=num_frames, ignore_eos=True)
    async with client.speak(config, max_lead_ms=2000) as speech:
        await speech.send_text(TEXT)
        await speech.end()
        await speech.finish()
        async for event in speech:
            match event.payload:
                case AudioChunk() as audio:
                    now_s = time.monotonic()
                    if played_until_s:
                        told.dry_s = max(told.dry_s, now_s - played_until_s)
                    else:
                        await begun.wait()
                        now_s = time.monotonic()
                    played_until_s = max(now_s, played_until_s) + len(audio.data) / BYTES_PER_S
                case Resumed() as resumed:
                    told.resumed_s = max(told.resumed_s, resumed.gap_s)
                case UtteranceDone():
                    told.num_done += 1


async def listen(address: str, first: int, num_sessions: int, num_frames: int) -> None:
    """One process of sessions: prints a line when all have begun, cuts when stdin says so, prints what came of it."""
    told = [Told() for _ in range(num_sessions)]
    begun = asyncio.Barrier(num_sessions + 1)
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(CuttingProxy(int(address.rpartition(":")[2])))
        clients = [
            await stack.enter_async_context(SpeechClient(f"127.0.0.1:{proxy.port}"))
            for _ in range(-(-num_sessions // SESSIONS_PER_CLIENT))
        ]
        async with asyncio.TaskGroup() as tasks:
            for number, each in enumerate(told):
                client = clients[number // SESSIONS_PER_CLIENT]
                tasks.create_task(session(client, first + number, num_frames, begun, each))
            await begun.wait()
            print("begun", flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            proxy.cut()
    print(json.dumps([asdict(each) for each in told]), flush=True)


async def storm(address: str, args: argparse.Namespace) -> None:
    bench = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sonorant.bench", "--server", address, "--paced", str(args.listeners),
        "--seconds", str(args.seconds), "--frames", "69",
    )  # fmt: skip
    children = []
    for first in range(0, args.resuming, SESSIONS_PER_PROCESS):
        num_sessions = min(SESSIONS_PER_PROCESS, args.resuming - first)
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.measure.storm", "--server", address, "--frames", str(args.frames),
            "--first", str(first), "--resuming", str(num_sessions),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert child.stdin is not None and child.stdout is not None
        children.append((child, child.stdin, child.stdout))
    for _, _, told_by in children:
        await told_by.readline()
    await asyncio.sleep(args.cut_after_s)
    print(f"cut {args.resuming} sessions", flush=True)
    for _, tell, _ in children:
        tell.write(b"cut\n")
    told = [Told(**each) for _, _, told_by in children for each in json.loads(await told_by.readline())]
    await asyncio.gather(bench.wait(), *(child.wait() for child, _, _ in children))
    resumed_s = [each.resumed_s for each in told if each.resumed_s]
    print(
        f"{sum(each.num_done for each in told)} of {len(told)} utterances completed, {len(resumed_s)} resumed; without "
        f"a server {in_ms(resumed_s)}; nothing to play for {in_ms([max(0.0, each.dry_s) for each in told])} "
        "(p50 / p95 / longest)"
    )


def in_ms(seconds: list[float]) -> str:
    p50, p95, longest = 1000 * np.percentile(seconds or [0.0], (50, 95, 100))
    return f"{p50:.0f} / {p95:.0f} / {longest:.0f} ms"


async def run(args: argparse.Namespace) -> None:
    async with AsyncExitStack() as stack:
        address = args.server or await stack.enter_async_context(local_server())
        await storm(address, args)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", metavar="HOST:PORT")
    parser.add_argument("--resuming", type=int, default=500)
    parser.add_argument("--listeners", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=20.0, help="for which the listeners are measured")
    parser.add_argument("--cut-after-s", type=float, default=4.0, help="after all sessions have their first audio")
    parser.add_argument("--frames", type=int, default=150, help="of each utterance that is cut")
    parser.add_argument("--first", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.first is None:
        uvloop.run(run(args))
    else:
        uvloop.run(listen(args.server, args.first, args.resuming, args.frames))


if __name__ == "__main__":
    main()
