"""Eight listeners of a gateway beside one stranger without a key: `python -m tests.measure.strangers [--seconds 60]`.

The gateway is a process that may open 256 files, before a server with keys. The stranger, a process of its own at nice
10, does all of this at the same time, for as long as you say: it sends what `tests.gateway.hostile_requests` has, holds
250 half-open connections again and again, calls by a name of its own as a rebound page does, and tries keys.
Meanwhile eight listeners with a key speak over WebSockets, at most 2 s ahead, and a caller asks for /health ten times a
second. Exit code 1 if /health took longer than 200 ms, a listener had a gap or lost audio, or the gateway grew by more
than 100 MB.
"""

import argparse
import asyncio
import logging
import math
import os
import random
import socket
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path

import aiohttp
import numpy as np
import uvloop

from sonorant.service.listening.accepting import NUM_ACCEPTORS
from tests.gateway.gateway_process import GatewayProcess
from tests.gateway.hostile_requests import requests as hostile_requests
from tests.service.fake_engine import FakeEngine
from tests.service.harness import eventually, served
from tests.service.keys import ADA, table

NUM_LISTENERS = 8
NUM_HALF_OPEN = 250
NUM_FILES = 256
MOST_HEALTH_MS, MOST_GROWTH_MB = 200.0, 100.0
EVERY_S = 0.1
TEXT = "This is a long day, and I am here with you. " * 4
CONFIG = {"type": "session.config", "response_format": "pcm", "stream_audio": True, "seed": 1, "max_lead_ms": 2000}
HALVES = (b"", b"GET /health HTT", b"POST /v1/audio/voices HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
REBOUND = b"GET /v1/audio/voices HTTP/1.1\r\nHost: evil.example\r\nOrigin: http://evil.example\r\n\r\n" * 30
KEYS = b"".join(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX-API-Key: %d\r\n\r\n" % number for number in range(30))


class Stranger:
    def __init__(self, port: int, seconds: float) -> None:
        self._port = port
        self._until_s = time.monotonic() + seconds
        self.done: Counter[str] = Counter()

    async def attack(self) -> None:
        requests = list(hostile_requests().values())
        sent = [self._send("requests", requests[number::4]) for number in range(4)]
        await asyncio.gather(*sent, self._send("names", [REBOUND]), self._send("keys", [KEYS]), self._hold())

    async def _send(self, what: str, requests: list[bytes]) -> None:
        """One after the other, on a connection each."""
        number = 0
        while time.monotonic() < self._until_s:
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(10):
                    reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                    try:
                        writer.write(requests[number % len(requests)])
                        await reader.readline()
                        self.done[what] += 1
                    finally:
                        writer.transport.abort()
            number += 1

    async def _hold(self) -> None:
        rng = random.Random(1)
        while time.monotonic() < self._until_s:
            with ExitStack() as stack:
                for _ in range(NUM_HALF_OPEN):
                    with suppress(OSError):
                        held = stack.enter_context(socket.create_connection(("127.0.0.1", self._port), timeout=1))
                        held.sendall(rng.choice(HALVES))
                        self.done["half-open"] += 1
                    await asyncio.sleep(0)
                await asyncio.sleep(1)


class Heard:
    def __init__(self) -> None:
        self.utterances = 0
        self.lost = 0
        self.gaps_ms: list[float] = []


async def utterance(socket: aiohttp.ClientWebSocketResponse, heard: Heard) -> bytes:
    """Say the text; return its audio."""
    for message in ({"type": "input.text", "text": TEXT}, {"type": "input.done"}):
        await socket.send_json(message)
    pcm, plays_until_s = bytearray(), 0.0
    async for message in socket:
        if message.type is aiohttp.WSMsgType.BINARY:
            now_s = time.monotonic()
            if plays_until_s and now_s > plays_until_s:
                heard.gaps_ms.append((now_s - plays_until_s) * 1000)
            plays_until_s = max(now_s, plays_until_s) + len(message.data) / 48_000
            pcm += message.data
        elif message.json()["type"] == "session.done":
            break
    return bytes(pcm)


async def listen(url: str, heard: Heard, until_s: float) -> None:
    async with (
        aiohttp.ClientSession(url, headers={"X-API-Key": ADA}) as http,
        http.ws_connect("/v1/audio/speech/stream") as socket,
    ):
        await socket.send_json(CONFIG)
        expected = b""
        while time.monotonic() < until_s:
            pcm = await utterance(socket, heard)
            heard.utterances += 1
            heard.lost += not pcm or (bool(expected) and pcm != expected)
            expected = expected or pcm


async def ask_often(url: str, waits_ms: list[float], until_s: float) -> None:
    while time.monotonic() < until_s:
        begun_s = time.monotonic()
        try:
            async with aiohttp.ClientSession(url) as http, http.get("/health") as response:
                assert response.status == 200
            waits_ms.append((time.monotonic() - begun_s) * 1000)
        except aiohttp.ClientError as error:
            print(f"/health: {error!r}")
            waits_ms.append(math.inf)
        await asyncio.sleep(EVERY_S)


async def phase(process: GatewayProcess, seconds: float, *, stranger: bool) -> bool:
    heard, waits_ms, most_mb = Heard(), list[float](), process.resident_mb
    before_mb, before_s = most_mb, process.processor_s
    other = None
    if stranger:
        port = process.url.rpartition(":")[2]
        command = ("nice", sys.executable, "-m", "tests.measure.strangers", "--attack", port, "--seconds", str(seconds))
        other = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert other.stdout is not None
        await other.stdout.readline()  # it takes seconds to make its requests

    async def weigh() -> None:
        nonlocal most_mb
        while True:
            most_mb = max(most_mb, process.resident_mb)
            await asyncio.sleep(EVERY_S)

    weighing = asyncio.create_task(weigh())
    until_s = time.monotonic() + seconds
    listeners = (listen(process.url, heard, until_s) for _ in range(NUM_LISTENERS))
    await asyncio.gather(*listeners, ask_often(process.url, waits_ms, until_s))
    weighing.cancel()
    median, p99, most_ms = np.percentile(waits_ms, (50, 99, 100))
    print(
        f"{'with' if stranger else 'without'} the stranger: /health {len(waits_ms)} times: median {median:.0f}, p99 "
        f"{p99:.0f}, at most {most_ms:.0f} ms; {heard.utterances} utterances, {heard.lost} not whole, "
        f"{len(heard.gaps_ms)} gaps of at most {max(heard.gaps_ms, default=0):.0f} ms; the gateway: "
        f"{before_mb:.0f} MB before, {most_mb:.0f} at most, {process.processor_s - before_s:.1f} s of a core"
    )
    if other is not None:
        told, _ = await other.communicate()
        print(f"  the stranger: {told.decode().strip()}")
    return most_ms <= MOST_HEALTH_MS and not heard.gaps_ms and not heard.lost and most_mb - before_mb <= MOST_GROWTH_MB


async def run(seconds: float) -> bool:
    print(f"load of the machine before: {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "keys.toml").write_text(table("ada", ADA))
        async with served(
            FakeEngine(), acceptors=NUM_ACCEPTORS, api_keys=folder / "keys.toml", voices_dir=folder / "voices"
        ) as server:
            process = await asyncio.to_thread(
                GatewayProcess, folder / "log", "--server", server.address, before=f"ulimit -n {NUM_FILES}"
            )
            try:

                async def ready() -> int:
                    async with aiohttp.ClientSession(process.url) as http, http.get("/ready") as response:
                        return response.status

                await eventually(ready, 200)
                await phase(process, seconds / 6, stranger=False)
                good = await phase(process, seconds, stranger=True)
            finally:
                await asyncio.to_thread(process.stop)
            print(*process.log.splitlines()[-3:], sep="\n")
    return good


async def attack(port: int, seconds: float) -> None:
    stranger = Stranger(port, seconds)
    await stranger.attack()
    print(
        ", ".join(f"{count} {what}" for what, count in stranger.done.items()), f"{time.process_time():.0f} s of a core"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--attack", type=int, metavar="PORT", help="be the stranger")
    args = parser.parse_args()
    if args.attack:
        print("ready", flush=True)
        uvloop.run(attack(args.attack, args.seconds))
    else:
        logging.disable(logging.WARNING)  # the server's word on each refused call costs what the gateway may need
        sys.exit(not uvloop.run(run(args.seconds)))


if __name__ == "__main__":
    main()
