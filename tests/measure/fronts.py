"""What listeners behind a front notice of a server's fault: `python -m tests.measure.fronts [--rounds 2]`.

Three servers with an engine of exact meaning, behind HAProxy and Envoy as deploy/ sets them up; nine sessions, which
resume, hear one utterance of 4 s after another. In each round one server is killed, frozen or drained, or all are
replaced one after the other. Told are utterances with other audio than they should have, sessions resumed, how long the
client was without a server, and the longest time for which each session that was resumed had nothing to play.
"""

import argparse
import asyncio
import itertools
import signal
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from sonorant.client import AudioChunk, Resumed, SpeechClient, UtteranceDone, synthesis_config
from tests.deploy.fronts import FRONTS, Front
from tests.deploy.replicas import Replica
from tests.service.fake_speech import spoken
from tests.service.harness import eventually

NUM_SESSIONS = 9
TEXT = "an utterance of four secs"  # a character is 160 ms
BYTES_PER_S = 48_000
BEFORE_S, BEHIND_S = 2.5, 10.0  # of the fault
SETTLE_TIMEOUT_S = 120
LEADS_MS = (2000, 300)
FAULTS = {"kill": signal.SIGKILL, "freeze": signal.SIGSTOP, "drain": signal.SIGTERM, "roll": None}


@dataclass
class Told:
    num_utterances: int = 0
    num_wrong: int = 0
    interruptions_s: list[float] = field(default_factory=list)
    longest_dry_s: float = 0.0


async def session(client: SpeechClient, lead_ms: int, begun: asyncio.Barrier, over: asyncio.Event) -> Told:
    told, pcm, played_until_s = Told(), b"", 0.0
    async with client.speak(synthesis_config(seed=7), max_lead_ms=lead_ms) as speech:

        async def say() -> None:
            await speech.send_text(TEXT)
            await speech.end()

        await say()
        async for event in speech:
            match event.payload:
                case AudioChunk() as audio:
                    now_s = time.monotonic()
                    if played_until_s:
                        told.longest_dry_s = max(told.longest_dry_s, now_s - played_until_s)
                    else:
                        await begun.wait()
                        now_s = time.monotonic()
                    played_until_s = max(now_s, played_until_s) + len(audio.data) / BYTES_PER_S
                    pcm += audio.data
                case Resumed() as resumed:
                    told.interruptions_s.append(resumed.gap_s)
                case UtteranceDone():
                    told.num_utterances += 1
                    told.num_wrong += pcm != spoken(TEXT, seed=7)
                    pcm = b""
                    await (speech.finish() if over.is_set() else say())
    return told


async def settle(front: Front) -> None:
    await eventually(lambda: asyncio.to_thread(front.fit), [True] * 3, SETTLE_TIMEOUT_S)


async def strike(replicas: list[Replica], front: Front, number: signal.Signals | None) -> None:
    if number is not None:
        replicas[1].send(number)
        return
    for replica in replicas:
        replica.send(signal.SIGTERM)
        await asyncio.to_thread(replica.wait)
        replica.close()
        await asyncio.to_thread(replica.start)
        await settle(front)


async def round_of(replicas: list[Replica], front: Front, fault: str, lead_ms: int) -> list[Told]:
    await settle(front)
    begun, over = asyncio.Barrier(NUM_SESSIONS + 1), asyncio.Event()
    async with AsyncExitStack() as stack:
        target = f"127.0.0.1:{front.port}"
        clients = [await stack.enter_async_context(SpeechClient(target)) for _ in range(NUM_SESSIONS)]
        tasks = [asyncio.create_task(session(client, lead_ms, begun, over)) for client in clients]
        await begun.wait()
        await asyncio.sleep(BEFORE_S)
        await strike(replicas, front, FAULTS[fault])
        await asyncio.sleep(BEHIND_S)
        over.set()
        told = await asyncio.gather(*tasks)
    if fault == "freeze":
        replicas[1].send(signal.SIGCONT)
    elif fault != "roll":
        await asyncio.to_thread(replicas[1].wait)
        replicas[1].close()
        await asyncio.to_thread(replicas[1].start)
    return told


def row(name: str, fault: str, lead_ms: int, told: list[Told]) -> str:
    resumed = [each for each in told if each.interruptions_s]
    interruptions_s = [gap_s for each in resumed for gap_s in each.interruptions_s] or [0.0]
    of = {"those resumed": resumed, "others": [each for each in told if not each.interruptions_s]}
    dry = []
    for kind, some in of.items():
        longest_ms = 1000 * np.array([max(0.0, each.longest_dry_s) for each in some] or [0.0])
        p50, p95 = np.percentile(longest_ms, (50, 95))
        dry.append(f"{kind} {p50:.0f} / {p95:.0f} / {longest_ms.max():.0f}")
    p50, p95 = np.percentile(interruptions_s, (50, 95)) * 1000
    num_wrong, num_utterances = sum(each.num_wrong for each in told), sum(each.num_utterances for each in told)
    return (
        f"{name:8} {fault:7} lead {lead_ms:4}: {num_wrong} of {num_utterances} utterances wrong, "
        f"{len(resumed)} of {len(told)} sessions resumed; "
        f"without a server {p50:.0f} / {p95:.0f} / {max(interruptions_s) * 1000:.0f} ms; nothing to play for "
        f"{', '.join(dry)} ms (p50 / p95 / longest)"
    )


async def run(args: argparse.Namespace) -> None:
    for name in args.fronts:
        with tempfile.TemporaryDirectory() as folder:
            replicas = [Replica(Path(folder), f"replica-{number}") for number in range(3)]
            front = FRONTS[name](Path(folder), replicas)
            try:
                for fault, lead_ms in itertools.product(args.faults, LEADS_MS):
                    told = []
                    for _ in range(args.rounds):
                        told += await round_of(replicas, front, fault, lead_ms)
                    print(row(name, fault, lead_ms, told), flush=True)
            finally:
                front.close()
                for replica in replicas:
                    replica.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.measure.fronts", description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--fronts", nargs="+", choices=list(FRONTS), default=list(FRONTS))
    parser.add_argument("--faults", nargs="+", choices=list(FAULTS), default=list(FAULTS))
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
