"""Minutes of rough use of a real server, and what is left of it: `python -m tests.service.soak [--minutes 4]`.

Clients speak, interrupt, give their calls up in the middle, ask for what is refused, and come again, some over new
connections. Memory of the server and of its workers is told as it goes; at the end, with nobody there any more, every
session and slot must be free, and open files and child processes as many as before. Exit code 1 if not.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import uvloop

from sonorant.tts.v1 import speak_pb2
from sonorant.tts.v1.text_to_speech_service_pb2 import (
    GetCapabilitiesRequest,
    SynthesizeRequest,
    SynthesizeStreamRequest,
)
from tests.e2e.server_process import ServerProcess
from tests.service.harness import Stub, cancel, end, flush, say

TEXTS = ("Yes.", "Hello, world.", "This is a long day. I am here with you.", "What is it? I do not know.")
SHORT = {"sampling": {"max_frames": 15}}
PHONE = {**SHORT, "audio": {"encoding": "AUDIO_ENCODING_MULAW"}, "speed": 1.25}
PATIENCE_S = 60.0


class Client:
    """One caller that never rests; `counts` is what came of it."""

    def __init__(self, rng: random.Random, counts: Counter[str]) -> None:
        self._rng = rng
        self._counts = counts

    async def use(self, address: str, until_s: float) -> None:
        kinds: tuple[Callable[[Any], Awaitable[None]], ...] = (
            self.converse, self.converse, self.converse, self.clip, self.stream, self.give_up, self.be_refused
        )  # fmt: skip
        while time.monotonic() < until_s:
            async with grpc.aio.insecure_channel(address, (("grpc.use_local_subchannel_pool", 1),)) as channel:
                for _ in range(self._rng.randint(1, 30)):
                    if time.monotonic() > until_s:
                        return
                    async with asyncio.timeout(PATIENCE_S):
                        await self._rng.choice(kinds)(Stub(channel))
                    self._counts["calls"] += 1

    async def converse(self, stub: Any) -> None:
        """Some utterances, of which some are interrupted."""
        call = stub.Speak()
        lead_ms = self._rng.choice((0, 0, 1000))
        synthesis = self._rng.choice((SHORT, PHONE))
        await call.write(speak_pb2.SpeakRequest(config={"synthesis": synthesis, "max_lead_ms": lead_ms}))
        for number in range(self._rng.randint(1, 3)):
            name = f"u{number}"
            for word in self._rng.choice(TEXTS).split(" "):
                await call.write(say(f"{word} ", name))
                if self._rng.random() < 0.1:
                    await call.write(flush(number, name))
            await call.write(end(name))
            interrupt = self._rng.random() < 0.4
            while not (response := await call.read()).HasField("done"):
                if interrupt and response.HasField("audio"):
                    interrupt = False
                    await call.write(cancel("*"))
            self._over(response.done)
        await call.done_writing()
        while await call.read() is not grpc.aio.EOF:
            pass

    async def clip(self, stub: Any) -> None:
        self._over(await stub.Synthesize(SynthesizeRequest(text=self._rng.choice(TEXTS), config=SHORT)))

    async def stream(self, stub: Any) -> None:
        async for response in stub.SynthesizeStream(SynthesizeStreamRequest(text=TEXTS[1], config=PHONE)):
            if response.HasField("done"):
                self._over(response.done)

    async def give_up(self, stub: Any) -> None:
        """The call, at any point of it."""
        call = stub.Speak()
        await call.write(speak_pb2.SpeakRequest(config={"synthesis": SHORT}))
        await call.write(say(self._rng.choice(TEXTS)))
        await asyncio.sleep(self._rng.random() * 0.3)
        call.cancel()
        self._counts["given up"] += 1

    async def be_refused(self, stub: Any) -> None:
        bad = self._rng.choice(({"speed": 9}, {"voice": {"voice_id": "nobody"}}, {"audio": {"sample_rate_hz": 1}}))
        try:
            await stub.Synthesize(SynthesizeRequest(text="Hello.", config=bad))
        except grpc.aio.AioRpcError:
            self._counts["refused"] += 1

    def _over(self, done: Any) -> None:
        self._counts["utterances"] += 1
        self._counts[f"reason {done.reason}"] += 1
        self._counts["audio ms"] += done.stats.sent_ms


def memory_mb(pids: list[int]) -> list[float]:
    """Resident memory of each process that is still there."""
    lines = [Path(f"/proc/{pid}/status").read_text() for pid in pids]
    return [int(text.split("VmRSS:")[1].split()[0]) / 1024 for text in lines]


async def watch(server: ServerProcess, pids: list[int], counts: Counter[str], until_s: float, every_s: float) -> None:
    start_s = time.monotonic()
    while True:
        sizes = "".join(f"{size:>10.1f}" for size in memory_mb(pids))
        print(f"{time.monotonic() - start_s:>6.0f} {counts['utterances']:>10} {sizes}", flush=True)
        if time.monotonic() + every_s > until_s:
            return
        await asyncio.sleep(every_s)


async def soak(minutes: float, num_clients: int, seed: int) -> bool:
    with tempfile.TemporaryDirectory() as folder, ServerProcess(Path(folder) / "log") as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            capabilities = await Stub(channel).GetCapabilities(GetCapabilitiesRequest())
            files, children = server.open_files(), server.child_ids()
            pids = [server.process.pid, *children]
            names = [name.removeprefix("sonorant-") for name in ("service", *children.values())]
            print(f" {'s':>5} {'utterances':>10} " + "".join(f"{name:>7} MB" for name in names))
            counts: Counter[str] = Counter()
            until_s = time.monotonic() + minutes * 60
            clients = [Client(random.Random(f"{seed} {number}"), counts) for number in range(num_clients)]
            await asyncio.gather(
                *(client.use(server.address, until_s) for client in clients),
                watch(server, pids, counts, until_s, minutes * 60 / 12),
            )
            await asyncio.sleep(2)
            capabilities = await Stub(channel).GetCapabilities(GetCapabilitiesRequest())
            left = {
                "sessions": capabilities.active_sessions,
                "streams": capabilities.active_streams,
                "files": server.open_files() - files,
                "processes": set(server.child_ids()) ^ set(children),
            }
            errors = [line for line in server.log.splitlines() if '"level": "error"' in line]
        print(", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
        print("left behind:", {what: each for what, each in left.items() if each} or "nothing")
        print("errors logged:", len(errors))
    return not any(left.values()) and not errors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    sys.exit(not uvloop.run(soak(args.minutes, args.clients, args.seed)))


if __name__ == "__main__":
    main()
