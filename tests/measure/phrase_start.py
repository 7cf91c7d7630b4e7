"""How soon the first audio of a phrase comes that was spoken before, over gRPC on loopback, beside one that was not,
and beside a call of gRPC that does nothing. And what a hit costs the server in processor time, which says more where
other programs run.

python -m tests.measure.phrase_start [--rounds 300]
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import grpc

from sonorant.client import SpeechClient
from sonorant.tts.v1 import synthesis_pb2
from sonorant.tts.v1.audio_pb2 import AudioChunk
from tests.e2e.server_process import ServerProcess
from tests.measure.echo import PATH
from tests.service.harness import assert_same_audio

TEXT = "One moment please."
BLOCK = 50


Heard = tuple[float, bytes, bool]  # ms until the first samples, all the bytes, whether it was a hit
Speak = Callable[[int], Awaitable[Heard]]  # with a seed


def config(seed: int) -> synthesis_pb2.SynthesisConfig:
    return synthesis_pb2.SynthesisConfig(sampling={"seed": seed, "do_sample": True})


async def heard(payloads: AsyncIterator[Any], start_s: float) -> Heard:
    first_s, audio, is_hit = 0.0, b"", False
    async for payload in payloads:
        if isinstance(payload, synthesis_pb2.UtteranceStarted):
            is_hit = payload.from_phrase_cache
        elif isinstance(payload, AudioChunk):
            first_s = first_s or time.perf_counter() - start_s
            audio += payload.data
    return first_s * 1000, audio, is_hit


def ways(client: SpeechClient) -> dict[str, Speak]:
    async def stream(seed: int) -> Heard:
        return await heard(client.stream(TEXT, config(seed)), time.perf_counter())

    async def speak(seed: int) -> Heard:
        start_s = time.perf_counter()
        async with client.speak(config(seed), text=TEXT) as session:
            await session.end()
            await session.finish()
            return await heard((event.payload async for event in session), start_s)

    async def speak_at_once(seed: int) -> Heard:
        start_s = time.perf_counter()
        async with client.speak(config(100 + seed), text=TEXT, end=True) as session:
            await session.finish()
            return await heard((event.payload async for event in session), start_s)

    return {
        "SynthesizeStream": stream,
        "Speak, text with the call": speak,
        "Speak, text and end with the call": speak_at_once,
    }


async def echo_ms(echo: Any) -> float:
    start_s = time.perf_counter()
    call = echo()
    await call.write(TEXT.encode())
    await call.read()
    first_s = time.perf_counter() - start_s
    await call.done_writing()
    await call.read()
    return first_s * 1000


def cpu_s(pid: int) -> float:
    """Of all threads of the process, so far; of Linux."""
    return sum(int(file.read_text().split()[0]) for file in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def tell(name: str, times: Sequence[float]) -> None:
    p50, p95 = statistics.median(times), sorted(times)[int(len(times) * 0.95)]
    print(f"{name:>43}: p50 {p50:.2f} ms, p95 {p95:.2f} ms, least {min(times):.2f} ms")


async def measure(server: ServerProcess, echo_address: str, rounds: int) -> None:
    """Each way a block of calls, in turn: what else runs on the machine meets them all."""
    kept: dict[str, list[float]] = defaultdict(list)
    cpu_ms: dict[str, list[float]] = defaultdict(list)
    async with SpeechClient(server.address) as client, grpc.aio.insecure_channel(echo_address) as channel:
        await channel.channel_ready()
        made = {name: [await speak(seed) for seed in range(5)] for name, speak in ways(client).items()}
        for name, results in made.items():
            assert not any(is_hit for *_, is_hit in results)
            tell(f"made, {name}", [ms for ms, *_ in results])
        for _ in range(rounds // BLOCK):
            for name, speak in ways(client).items():
                before_s = cpu_s(server.process.pid)
                hits = [await speak(number % 5) for number in range(BLOCK)]
                cpu_ms[name].append((cpu_s(server.process.pid) - before_s) * 1000 / BLOCK)
                for number, (_, audio, _) in enumerate(hits):
                    assert_same_audio(audio, made[name][number % 5][1])
                # In `Speak` the end may come too late on a busy machine, and the phrase is made.
                kept[name] += [ms for ms, _, is_hit in hits if is_hit]
            kept["a bare echo of gRPC"] += [await echo_ms(channel.stream_stream(PATH)) for _ in range(BLOCK)]
    for name, times in kept.items():
        tell(f"{len(times)} kept, {name}" if name in cpu_ms else name, times)
    for name, each in cpu_ms.items():
        print(f"{name}: a hit costs {statistics.median(each):.2f} ms of processor time, least {min(each):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300)
    args = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        ServerProcess(Path(folder) / "log", "--phrase-cache-bytes", "64000000") as server,
    ):
        command = (sys.executable, "-m", "tests.measure.echo")
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as echo:
            assert echo.stdout is not None
            try:
                print(f"load of the machine: {os.getloadavg()[0]:.1f}")
                asyncio.run(measure(server, echo.stdout.readline().strip(), args.rounds))
            finally:
                echo.terminate()


if __name__ == "__main__":
    main()
