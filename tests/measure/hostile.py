"""Eight listeners and a caller beside one hostile client: `python -m tests.measure.hostile [--seconds 60]`.

First without it, then with it, on a server of its own with the built-in voice. Listeners hear utterances at the pace of
speech and compare every sample with the same text spoken alone; the caller opens a call ten times a second. The client,
a process of its own, does all that `tests.measure.attacks` has, or only `--attacks NAME...`. It calls from another
address than they do, if this machine has one, as a stranger would: callers on one machine are one to the server.

It is there twice. Near: at nice 10, so that what it computes is taken from the server's cores. Far: it gets only time
that nobody else wants, as if it had a machine of its own, but for being slower; what the server does for it counts in
full. Of the longest calls it is told who computed meanwhile and who waited for a core. Exit code 1 if a listener lost
audio, or anybody but the client was refused.
"""

import argparse
import asyncio
import os
import socket
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
from tests.measure.cores import Shares, Wait, set_niceness, since, threads_of
from tests.service.harness import Stub, assert_same_audio, end, say

NUM_LISTENERS = 8
TEXT = "This is a long day, and I am here with you. What is it? I do not know."
CONFIG = {"synthesis": {"sampling": {"seed": 7, "max_frames": 60}}, "max_lead_ms": 1000}
EVERY_S = 0.1
ATTACKERS = {"near": (10, ("nice",)), "far": (14, ("chrt", "--idle", "0"))}  # nicer than others by so much; how it runs
NUM_TOLD = 5  # calls


def other_address() -> str:
    """Of this machine, beside loopback; nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


class Heard:
    """What the listeners of one phase had."""

    def __init__(self) -> None:
        self.utterances = 0
        self.lost = 0
        self.first_ms: list[float] = []  # from the text to the first audio
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
    pcm, plays_until_s, begun_s = bytearray(), 0.0, time.monotonic()
    async for response in call:
        if response.HasField("audio"):
            now_s = time.monotonic()
            if plays_until_s and now_s > plays_until_s:
                heard.gaps_ms.append((now_s - plays_until_s) * 1000)
            if not pcm:
                heard.first_ms.append((now_s - begun_s) * 1000)
            pcm += response.audio.data
            plays_until_s = max(now_s, plays_until_s) + response.audio.num_samples / 24_000
        elif response.HasField("done") and response.done.error.code:
            heard.refusals[response.done.error.message] += 1
    return bytes(pcm)


async def call_often(stub: Any, server: ServerProcess, heard: Heard, waits: list[Wait], until_s: float) -> None:
    loop = server.serving_pid  # the main thread's id
    while time.monotonic() < until_s:
        service, own, start_s = threads_of(loop), threads_of(os.getpid()), time.monotonic()
        try:
            await stub.GetCapabilities(GetCapabilitiesRequest())
        except grpc.aio.AioRpcError as error:
            heard.refusals[f"calls: {error.code().name}: {error.details()}"] += 1
        ms = (time.monotonic() - start_s) * 1000
        waits.append(Wait.of(ms, since(service, threads_of(loop)), loop, since(own, threads_of(os.getpid()))))
        await asyncio.sleep(EVERY_S)


async def attackers(name: str, address: str, seconds: float, attacks: Sequence[str]) -> Any:
    """Their process, which has begun."""
    niceness, command = ATTACKERS[name]
    command = (*command, sys.executable, "-m", "tests.measure.attacks", address, str(seconds), *attacks)
    process: Any = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    set_niceness(process.pid, os.getpriority(os.PRIO_PROCESS, 0) + niceness)
    await process.stdout.readline()  # it takes seconds to start
    return process


async def phase(
    name: str, stub: Any, server: ServerProcess, expected: bytes, seconds: float, attacks: Sequence[str] = ()
) -> bool:
    """`name`: of ATTACKERS, or there are none. `attacks`: those that are made; none = all."""
    heard, waits = Heard(), list[Wait]()
    others = await attackers(name, f"{other_address()}:{server.port}", seconds, attacks) if name in ATTACKERS else None
    shares = Shares(
        {
            "service": lambda: [server.serving_pid],
            "workers": lambda: list(server.child_ids().keys() - {server.serving_pid}),
            "listeners": lambda: [os.getpid()],
        }
    )
    until_s = time.monotonic() + seconds
    listeners = (listen(stub, heard, expected, until_s) for _ in range(NUM_LISTENERS))
    await asyncio.gather(*listeners, call_often(stub, server, heard, waits, until_s))
    median, p99, most = np.percentile([each.ms for each in waits], (50, 99, 100))
    longest_ms = max(heard.gaps_ms, default=0)
    print(
        f"{name:>6}: {heard.utterances} utterances, {heard.lost} not whole, first audio after at most "
        f"{max(heard.first_ms, default=0):.0f} ms; {len(heard.gaps_ms)} gaps of at most "
        f"{longest_ms:.0f} ms; {len(waits)} calls: median {median:.0f}, p99 {p99:.0f}, at most {most:.0f} ms"
    )
    print(f"{'':>6}  cores: {shares.told()}")
    for wait in sorted(waits, key=lambda each: -each.ms)[:NUM_TOLD]:
        print(f"{'':>6}  {wait}")
    for refusal, count in heard.refusals.items():
        print(f"{'':>6}  {count} x {refusal}")
    if others is not None:
        told, _ = await others.communicate()
        print(f"{'':>6}  attacks: {told.decode().strip()}")
    return not heard.lost and not heard.refusals


async def run(seconds: float, attacks: Sequence[str], niceness: int) -> bool:
    os.nice(niceness)
    set_niceness(os.getpid(), niceness)
    print(f"load of the machine before: {os.getloadavg()[0]:.1f}; the hostile client calls from {other_address()}")
    with (
        tempfile.TemporaryDirectory() as folder,
        ServerProcess(Path(folder) / "log", "--listen", "0.0.0.0:0") as server,
    ):
        for session in (server.process.pid, server.serving_pid):
            set_niceness(session, niceness)
        async with grpc.aio.insecure_channel(server.address) as channel:
            stub = Stub(channel)
            expected = await utterance(stub, Heard())
            await phase("alone", stub, server, expected, seconds / 3)
            good = [await phase(name, stub, server, expected, seconds, attacks) for name in ATTACKERS]
        errors = [line for line in server.log.splitlines() if '"level": "error"' in line]
        print(*errors[:5], sep="\n")
    return all(good) and not errors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument(
        "--attacks", nargs="*", default=[], metavar="NAME", help="of tests.measure.attacks; default: all"
    )
    parser.add_argument(
        "--niceness", type=int, default=0, help="below 0: before what else this machine has to do; for root"
    )
    args = parser.parse_args()
    sys.exit(not uvloop.run(run(args.seconds, args.attacks, args.niceness)))


if __name__ == "__main__":
    main()
