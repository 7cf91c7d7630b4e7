"""Eight listeners and a caller beside one hostile client: `python -m tests.measure.hostile [--seconds 60]`.

First without it, then with it, on a server of its own with the built-in voice. Listeners hear utterances at the pace of
speech and compare every sample with the same text spoken alone; the caller opens a call ten times a second. The client,
a process of its own, does all that `tests.measure.attacks` has, or only `--attacks NAME...`. Exit code 1 if a listener
lost audio.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import uvloop

from sonorant.tts.v1 import speak_pb2
from sonorant.tts.v1.text_to_speech_service_pb2 import GetCapabilitiesRequest
from tests.e2e.server_process import ServerProcess
from tests.service.harness import Stub, assert_same_audio, end, say

NUM_LISTENERS = 8
TEXT = "This is a long day, and I am here with you. What is it? I do not know."
CONFIG = {"synthesis": {"sampling": {"seed": 7, "max_frames": 60}}, "max_lead_ms": 1000}
EVERY_S = 0.1


class Heard:
    """What the listeners of one phase had."""

    def __init__(self) -> None:
        self.utterances = 0
        self.lost = 0
        self.gaps_ms: list[float] = []  # silence within an utterance, where audio came too late
        self.refusals: Counter[str] = Counter()


async def listen(stub: Any, heard: Heard, expected: bytes, until_s: float) -> None:
    while time.monotonic() < until_s:
        try:
            pcm = await utterance(stub, heard)
        except grpc.aio.AioRpcError as error:
            heard.refusals[f"{error.code().name}: {error.details()}"] += 1
            await asyncio.sleep(0.1)
            continue
        heard.utterances += 1
        if expected:
            try:
                assert_same_audio(pcm, expected)
            except AssertionError:
                heard.lost += 1


async def utterance(stub: Any, heard: Heard) -> bytes:
    call = stub.Speak()
    for request in (speak_pb2.SpeakRequest(config=CONFIG), say(TEXT), end()):
        await call.write(request)
    await call.done_writing()
    pcm, plays_until_s = bytearray(), 0.0
    async for response in call:
        if response.HasField("audio"):
            now_s = time.monotonic()
            if plays_until_s and now_s > plays_until_s:
                heard.gaps_ms.append((now_s - plays_until_s) * 1000)
            pcm += response.audio.data
            plays_until_s = max(now_s, plays_until_s) + response.audio.num_samples / 24_000
        elif response.HasField("done") and response.done.error.code:
            heard.refusals[response.done.error.message] += 1
    return bytes(pcm)


async def call_often(stub: Any, heard: Heard, waits_ms: list[float], until_s: float) -> None:
    while time.monotonic() < until_s:
        start_s = time.monotonic()
        try:
            await stub.GetCapabilities(GetCapabilitiesRequest())
        except grpc.aio.AioRpcError as error:
            heard.refusals[f"calls: {error.code().name}: {error.details()}"] += 1
        waits_ms.append((time.monotonic() - start_s) * 1000)
        await asyncio.sleep(EVERY_S)


async def phase(
    name: str, stub: Any, address: str, expected: bytes, seconds: float, attacks: Sequence[str] | None
) -> bool:
    """`attacks`: the names of those that are made meanwhile; empty = all, None = none."""
    heard, waits_ms = Heard(), []
    others: Any = None
    if attacks is not None:
        command = ("nice", sys.executable, "-m", "tests.measure.attacks", address, str(seconds), *attacks)
        others = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        await others.stdout.readline()  # it takes seconds to start
    until_s = time.monotonic() + seconds
    listeners = (listen(stub, heard, expected, until_s) for _ in range(NUM_LISTENERS))
    await asyncio.gather(*listeners, call_often(stub, heard, waits_ms, until_s))
    median, p99, most = np.percentile(waits_ms, (50, 99, 100))
    longest_ms = max(heard.gaps_ms, default=0)
    print(
        f"{name:>14}: {heard.utterances} utterances, {heard.lost} not whole; {len(heard.gaps_ms)} gaps of at most "
        f"{longest_ms:.0f} ms; {len(waits_ms)} calls: median {median:.0f}, p99 {p99:.0f}, at most {most:.0f} ms"
    )
    for refusal, count in heard.refusals.items():
        print(f"{'':>14}  {count} x {refusal}")
    if others is not None:
        told, _ = await others.communicate()
        print(f"{'':>14}  attacks: {told.decode().strip()}")
    return not heard.lost and not heard.refusals


async def run(seconds: float, attacks: Sequence[str]) -> bool:
    print(f"load of the machine before: {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder, ServerProcess(Path(folder) / "log") as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            stub = Stub(channel)
            expected = await utterance(stub, Heard())
            await phase("alone", stub, server.address, expected, seconds / 3, None)
            good = await phase("with a hostile", stub, server.address, expected, seconds, attacks)
        errors = [line for line in server.log.splitlines() if '"level": "error"' in line]
        print(*errors[:5], sep="\n")
    return good and not errors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument(
        "--attacks", nargs="*", default=[], metavar="NAME", help="of tests.measure.attacks; default: all"
    )
    args = parser.parse_args()
    sys.exit(not uvloop.run(run(args.seconds, args.attacks)))


if __name__ == "__main__":
    main()
