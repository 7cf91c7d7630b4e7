"""Processes are killed in front of live callers of a gateway: `python -m tests.measure.gateway_restarts`.

A gateway of two processes stands in front of two servers. In each round two callers by HTTP and two on Cartesia's
WebSocket, half of whose contexts are cancelled, speak; at a random moment a server with all its workers, or a process
of the gateway, is killed (`kill -9`) and started again.

When a server is killed, every answer must be the whole audio, once. When a process of the gateway is killed, its own
connections break: what came until then must be the beginning of the audio, and the next request must be answered. In
both cases nothing may follow the end of a context, and a context ends once.
"""

import argparse
import asyncio
import os
import random
import signal
import tempfile
import time
import traceback
from collections import Counter
from functools import partial
from pathlib import Path

import aiohttp

from sonorant.gateway.upstream.servers import HEALTH_RETRY_S
from tests.e2e.restart_rounds import SENTENCES, RestartedServer
from tests.gateway.cartesia_client import Heard, end, text
from tests.gateway.gateway_process import GatewayProcess
from tests.service.harness import assert_same_audio, eventually

VOICE = "linden"
TURNS = 2
AGAIN_WITHIN_S = 60.0
GONE = (aiohttp.ClientError, ConnectionError, TypeError)  # TypeError: a closed socket has no message


class Caller:
    def __init__(self, url: str, known: list[bytes], rng: random.Random) -> None:
        self.url, self.known, self.rng = url, known, rng
        self.counts: Counter[str] = Counter()

    async def talk(self, by_socket: bool) -> Counter[str]:
        for _ in range(TURNS):
            sentence = self.rng.randrange(len(SENTENCES))
            answer = self.by_socket if by_socket else self.by_http
            # Again, if a process of the gateway was killed.
            await eventually(partial(answer, sentence), True, timeout_s=AGAIN_WITHIN_S)
        return self.counts

    async def by_http(self, sentence: int) -> bool:
        """Return whether the answer was whole. Raises AssertionError for audio that is not its own."""
        body = {"input": SENTENCES[sentence], "voice": VOICE, "response_format": "pcm"}
        heard, is_whole = bytearray(), False
        try:
            async with aiohttp.ClientSession(self.url) as http, http.post("/v1/audio/speech", json=body) as response:
                assert response.status == 200, await response.text()
                async for data in response.content.iter_any():
                    heard += data
                is_whole = True
        except GONE:
            self.counts["broken off"] += 1
        self.check(bytes(heard), sentence, is_whole)
        return is_whole

    async def by_socket(self, sentence: int) -> bool:
        cancel_s = self.rng.uniform(0, 1.5) if self.rng.random() < 0.5 else None
        context, is_done = f"c{self.rng.random()}", False
        async with aiohttp.ClientSession(self.url) as http:
            try:
                async with http.ws_connect("/tts/websocket") as socket:
                    heard = Heard(socket)
                    voice = {"mode": "id", "id": VOICE}
                    await socket.send_json(text(context, SENTENCES[sentence], voice=voice))
                    if cancel_s is None:
                        await socket.send_json(end(context) | {"voice": voice})
                    else:
                        await asyncio.sleep(cancel_s)
                        await socket.send_json({"context_id": context, "cancel": True})
                    async with asyncio.timeout(60):
                        while context not in heard.done:
                            message = await heard.next()
                            assert message["type"] != "error", message
                    is_done = True
                    try:
                        async with asyncio.timeout(0.3):
                            raise AssertionError(f"after its end: {(await heard.next())['type']}")
                    except TimeoutError:
                        pass
            except GONE:
                if not is_done:
                    self.counts["broken off"] += 1
                    return False
        self.check(heard.audio.get(context, b""), len(SENTENCES) + sentence, is_whole=cancel_s is None)
        return True

    def check(self, heard: bytes, number: int, is_whole: bool) -> None:
        """`number`: of the known audio."""
        known = self.known[number]
        self.counts["whole" if is_whole else "part"] += 1
        assert len(heard) <= len(known) and (not is_whole or len(heard) == len(known)), (len(heard), len(known))
        if heard:
            assert_same_audio(heard, known[: len(heard)])


async def undisturbed(url: str) -> list[bytes]:
    """The audio of all sentences by HTTP, then by WebSocket."""
    known = []
    async with aiohttp.ClientSession(url) as http:
        for sentence in SENTENCES:
            body = {"input": sentence, "voice": VOICE, "response_format": "pcm"}
            async with http.post("/v1/audio/speech", json=body) as response:
                known.append(await response.read())
        async with http.ws_connect("/tts/websocket") as socket:
            heard = Heard(socket)
            for number, sentence in enumerate(SENTENCES):
                voice = {"mode": "id", "id": VOICE}
                await socket.send_json(text(str(number), sentence, voice=voice))
                await socket.send_json(end(str(number)) | {"voice": voice})
                await heard.until_done(str(number))
                known.append(heard.audio[str(number)])
    return known


def gateway_processes(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def is_ready(url: str) -> bool:
    try:
        async with aiohttp.ClientSession(url) as http, http.get("/ready") as response:
            return response.status == 200
    except aiohttp.ClientError:
        return False


async def one_round(
    gateway: GatewayProcess, servers: list[RestartedServer], known: list[bytes], seed: int, *, kills_server: bool
) -> str:
    rng = random.Random(seed)
    async with asyncio.TaskGroup() as tasks:
        callers = [Caller(gateway.url, known, random.Random(rng.random())) for _ in range(4)]
        talks = [tasks.create_task(caller.talk(number % 2 == 1)) for number, caller in enumerate(callers)]
        await asyncio.sleep(rng.uniform(0.1, 2))
        if kills_server:
            await rng.choice(servers).restart()
        else:
            os.kill(rng.choice(gateway_processes(gateway.process.pid)), signal.SIGKILL)
    counts = sum((task.result() for task in talks), Counter[str]())
    assert not (kills_server and counts["broken off"]), counts
    return f"{'a server' if kills_server else 'a process of the gateway'} killed, {dict(counts)}"


async def run(args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        servers: list[RestartedServer] = []
        gateway = None
        try:
            for number in range(2):
                (log := Path(folder) / str(number)).mkdir()
                servers.append(await asyncio.to_thread(RestartedServer, log))
            addresses = [argument for server in servers for argument in ("--server", server.address)]
            gateway = await asyncio.to_thread(GatewayProcess, Path(folder) / "gateway", "--processes", "2", *addresses)
            await asyncio.to_thread(gateway.wait_for, "listening")  # the second one
            await eventually(partial(is_ready, gateway.url), True)
            known = await undisturbed(gateway.url)
            failed = 0
            for seed in range(args.first_seed, args.first_seed + args.rounds):
                await asyncio.sleep(3 * HEALTH_RETRY_S)  # the gateway sees again who was killed in the last round
                start_s = time.monotonic()
                try:
                    kills_server = args.servers_only or seed % 2 == 0
                    told = await one_round(gateway, servers, known, seed, kills_server=kills_server)
                except ExceptionGroup as error:
                    failed += 1
                    told = "; ".join(f"{type(each).__name__}: {each}" for each in error.exceptions)
                    traceback.print_exception(error)
                print(f"seed {seed}: {told}, {time.monotonic() - start_s:.1f} s", flush=True)
            print(f"{args.rounds} rounds of {4 * TURNS} answers: {failed} rounds failed")
        finally:
            if gateway is not None:
                gateway.stop()
            for server in servers:
                server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.measure.gateway_restarts", description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--servers-only", action="store_true", help="kill no process of the gateway")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
