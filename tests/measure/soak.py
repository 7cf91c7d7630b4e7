"""Minutes of rough use of a real server, and what is left of it: `python -m tests.measure.soak [--minutes 15]`.

Clients speak, clone, interrupt, read slowly or not at all, give their calls up in the middle, ask for what is refused,
and come again, some over new connections; every now and then a worker is killed (`--kill-every-s`, 0 = never). Memory
and threads of the server and its workers are told as it goes; at the end, with nobody there any more, every session and
slot must be free, and open files and child processes as many as before. Exit code 1 if not.

`--listeners N` has `sonorant bench` listen in real time meanwhile and tells what it measured. For a GPU, name what is
to be served, a checkpoint that clones among it:

    python -m tests.measure.soak --minutes 10 --listeners 500 --server-arguments "--load-format dummy \\
        --model qwen3-tts-12hz-1.7b-customvoice --model qwen3-tts-12hz-0.6b-base"
"""

import argparse
import asyncio
import gc
import os
import random
import shlex
import signal
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
from tests.engine.encoder.recordings import spoken
from tests.service.harness import Stub, cancel, end, flush, say
from tests.service.raw_http2 import CLOSED_WINDOW, raw_connection

TEXTS = ("Yes.", "Hello, world.", "This is a long day. I am here with you.", "What is it? I do not know.")
SHORT = {"sampling": {"max_frames": 15}}
PHONE = {**SHORT, "audio": {"encoding": "AUDIO_ENCODING_MULAW"}, "speed": 1.25}
SERVED = "--model built-in --model builtin_base"
PATIENCE_S = 120.0
REST_S = 15.0
# Of a server that has lost a worker, or has as many recordings or streams as it takes.
BUSY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)
LOST_IN_A_WRITE = "Internal error from Core"  # what grpc.aio makes of a status that comes while it writes


class Client:
    """One caller that never rests; `counts` is what came of it."""

    def __init__(self, address: str, rng: random.Random, counts: Counter[str]) -> None:
        self._address = address
        self._rng = rng
        self._counts = counts

    async def use(self, until_s: float) -> None:
        kinds: tuple[Callable[[Any], Awaitable[None]], ...] = (
            self.converse, self.converse, self.converse, self.clip, self.stream, self.give_up, self.be_refused,
            self.clone, self.read_slowly, self.stop_reading,
        )  # fmt: skip
        while time.monotonic() < until_s:
            async with grpc.aio.insecure_channel(self._address, (("grpc.use_local_subchannel_pool", 1),)) as channel:
                for _ in range(self._rng.randint(1, 30)):
                    if time.monotonic() > until_s:
                        return
                    try:
                        async with asyncio.timeout(PATIENCE_S):
                            await self._rng.choice(kinds)(Stub(channel))
                    except grpc.aio.AioRpcError as error:
                        if error.code() not in BUSY and (error.details() or "") != LOST_IN_A_WRITE:
                            raise
                        self._counts[f"refused: {error.code().name}"] += 1
                        await asyncio.sleep(0.5)
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
            while not (response := await read(call)).HasField("done"):
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

    async def clone(self, stub: Any) -> None:
        """A voice of its own, sent along: one of few, so that some are known already."""
        audio = spoken(2.0 + self._rng.randrange(4))
        config = {**SHORT, "voice": {"reference": {"audio": audio, "transcript": "Hello there."}}}
        self._over(await stub.Synthesize(SynthesizeRequest(text=TEXTS[0], config=config)))
        self._counts["clones"] += 1

    async def read_slowly(self, stub: Any) -> None:
        call = stub.SynthesizeStream(SynthesizeStreamRequest(text=TEXTS[2], config=SHORT))
        while (response := await call.read()) is not grpc.aio.EOF:
            await asyncio.sleep(self._rng.random())
            if response.HasField("done"):
                self._over(response.done)

    async def stop_reading(self, stub: Any) -> None:
        """For some seconds, with a closed window, and then be gone."""
        async with raw_connection(self._address, CLOSED_WINDOW) as connection:
            await connection.call(
                "/sonorant.tts.v1.TextToSpeechService/SynthesizeStream",
                SynthesizeStreamRequest(text=TEXTS[2], config=SHORT),
            )
            await asyncio.sleep(5 * self._rng.random())
        self._counts["stopped reading"] += 1

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


async def read(call: Any) -> Any:
    """The next response, of a session that is not over."""
    response = await call.read()
    if response is grpc.aio.EOF:
        raise grpc.aio.AioRpcError(await call.code(), grpc.aio.Metadata(), grpc.aio.Metadata(), await call.details())
    return response


def state_of(pid: int) -> str:
    """Resident memory and threads, if the process is still there."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
        return f"{int(text.split('VmRSS:')[1].split()[0]) / 1024:>8.1f}/{text.split('Threads:')[1].split()[0]:>3}"
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return f"{'-':>12}"


async def watch(server: ServerProcess, counts: Counter[str], until_s: float, every_s: float) -> None:
    start_s = time.monotonic()
    while True:
        children = sorted(server.child_ids().items(), key=lambda child: child[1])
        names = [name.removeprefix("sonorant-") for _, name in children]
        states = "".join(state_of(pid) for pid in (server.process.pid, *(pid for pid, _ in children)))
        print(
            f"{time.monotonic() - start_s:>6.0f} {counts['utterances']:>7} {states}  service, {', '.join(names)}",
            flush=True,
        )
        if time.monotonic() + every_s > until_s:
            return
        await asyncio.sleep(every_s)


async def kill_workers(
    server: ServerProcess, rng: random.Random, counts: Counter[str], until_s: float, every_s: float
) -> None:
    while every_s and time.monotonic() + 2 * every_s < until_s:
        await asyncio.sleep(every_s)
        os.kill(rng.choice(list(server.child_ids())), signal.SIGKILL)
        counts["killed workers"] += 1


async def listen(address: str, num_listeners: int, seconds: float) -> None:
    """Return once the last of them has heard its utterance to the end."""
    if not num_listeners:
        return
    bench = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sonorant.bench", "--server", address, "--paced", str(num_listeners), "--frames", "69",
        "--seconds", str(seconds), "--warm-up-s", "1",
    )  # fmt: skip
    await bench.wait()


async def soak(args: argparse.Namespace) -> bool:
    settings = shlex.split(args.server_arguments)
    with tempfile.TemporaryDirectory() as folder, ServerProcess(Path(folder) / "log", *settings) as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            await Stub(channel).GetCapabilities(GetCapabilitiesRequest())
            files, children = server.open_files(), Counter(server.children())
            print(f" {'s':>5} {'spoken':>7}  MB and threads of each process")
            counts: Counter[str] = Counter()
            seconds = args.minutes * 60
            until_s = time.monotonic() + seconds
            clients = [Client(server.address, random.Random(f"{args.seed} {n}"), counts) for n in range(args.clients)]
            await asyncio.gather(
                *(client.use(until_s) for client in clients),
                watch(server, counts, until_s, seconds / 12),
                kill_workers(server, random.Random(args.seed), counts, until_s, args.kill_every_s),
                listen(server.address, args.listeners, seconds),
            )
            gc.collect()  # clients' calls, which hold their connections
            await asyncio.sleep(REST_S)  # for an idle encoder to be stopped, and pairs to be back
            capabilities = await Stub(channel).GetCapabilities(GetCapabilitiesRequest())
            left = {
                "sessions": capabilities.active_sessions,
                "streams": capabilities.active_streams,
                "files": {kind: n - files[kind] for kind, n in server.open_files().items() if n > files[kind]},
                "processes": Counter(server.children()) - children,
                "processes fewer": children - Counter(server.children()),
            }
            bugs = [line for line in server.log.splitlines() if '"exception"' in line]
        print(", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
        print("left behind:", {what: each for what, each in left.items() if each} or "nothing")
        print("tracebacks logged:", len(bugs), *bugs[:3])
    return not any(left.values()) and not bugs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kill-every-s", type=float, default=60.0)
    parser.add_argument("--listeners", type=int, default=0)
    parser.add_argument("--server-arguments", default=SERVED)
    sys.exit(not uvloop.run(soak(parser.parse_args())))


if __name__ == "__main__":
    main()
