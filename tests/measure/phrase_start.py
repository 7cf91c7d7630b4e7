"""How soon the first audio of a phrase comes that was spoken before, over gRPC on loopback, beside one that was not.

And what a hit costs the server in processor time, which says more where other programs run.

python -m tests.measure.phrase_start [--rounds 300]
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path

import grpc

from sonorant.tts.v1 import synthesis_pb2
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeStreamRequest
from tests.e2e.server_process import ServerProcess
from tests.service.harness import Stub

TEXT = "One moment please."


async def first_audio_ms(stub: Stub, seed: int) -> tuple[float, bytes, bool]:
    """Until the first samples, all the bytes, and whether it was a hit."""
    config = synthesis_pb2.SynthesisConfig(sampling={"seed": seed, "do_sample": True})
    start_s = time.perf_counter()
    first_s, audio, is_hit = 0.0, b"", False
    async for response in stub.SynthesizeStream(SynthesizeStreamRequest(text=TEXT, config=config)):
        if response.HasField("started"):
            is_hit = response.started.from_phrase_cache
        if response.HasField("audio"):
            first_s = first_s or time.perf_counter() - start_s
            audio += response.audio.data
    return first_s * 1000, audio, is_hit


def cpu_s(pid: int) -> float:
    """Of all threads of the process, so far; of Linux."""
    return sum(int(file.read_text().split()[0]) for file in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


async def measure(server: ServerProcess, rounds: int) -> None:
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub = Stub(channel)
        made = [await first_audio_ms(stub, seed) for seed in range(5)]
        kept, cpu_ms = [], []
        for start in range(0, rounds, 50):
            before_s = cpu_s(server.process.pid)
            kept += [await first_audio_ms(stub, number % 5) for number in range(start, start + 50)]
            cpu_ms.append((cpu_s(server.process.pid) - before_s) * 1000 / 50)
    assert not any(is_hit for *_, is_hit in made) and all(is_hit for *_, is_hit in kept)
    assert all(audio == made[number % 5][1] for number, (_, audio, _) in enumerate(kept))
    for name, results in (("made", made), ("kept", kept)):
        times = sorted(ms for ms, *_ in results)
        p95 = times[int(len(times) * 0.95)]
        print(f"{name}: first audio p50 {statistics.median(times):.2f} ms, p95 {p95:.2f} ms, least {times[0]:.2f} ms")
    print(
        f"a hit costs {statistics.median(cpu_ms):.2f} ms of processor time, least {min(cpu_ms):.2f} ms of 50 in a row"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300)
    args = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        ServerProcess(Path(folder) / "log", "--phrase-cache-bytes", "64000000") as server,
    ):
        asyncio.run(measure(server, args.rounds))


if __name__ == "__main__":
    main()
