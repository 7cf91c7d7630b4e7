"""How soon a finished sentence is heard whole while nobody sends more: `python -m tests.measure.finished_sentences`.

A server and a gateway of its own get "Let me look that up for you. " in four pieces at each door, and no end. A player
that starts with the first audio plays what comes. Told is how long after the last piece of text it has played the whole
sentence, beyond the sentence's length: at most 300 ms is asked for.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from functools import partial
from pathlib import Path

import aiohttp
import grpc

from sonorant.client.local_server import local_server
from sonorant.tts.v1 import speak_pb2
from tests.e2e.sentence_doors import TEXT, over_cartesia, over_grpc, over_riva, over_websocket, over_wyoming
from tests.gateway.gateway_process import GatewayProcess
from tests.service.harness import Stub, config, end, eventually, say, speak

BYTES_PER_S = 48_000


async def over_http(http: aiohttp.ClientSession, **fields: str) -> AsyncIterator[bytes]:
    body = {"model": "tts-1", "input": TEXT, "voice": "default", "response_format": "pcm", **fields}
    async with http.post("/v1/audio/speech", json=body) as response:
        async for piece in response.content.iter_any():
            yield piece


async def beyond_ms(heard: AsyncIterator[bytes], num_bytes: int) -> float:
    """Return how much later than its length after the text a player has played so many bytes. What the doors take to
    send four short pieces counts, too."""
    sent_s = time.monotonic()
    played_s, missing = sent_s, num_bytes
    async with aclosing(heard), asyncio.timeout(60):  # type: ignore[type-var]
        async for audio in heard:
            played_s = max(played_s, time.monotonic()) + min(len(audio), missing) / BYTES_PER_S
            missing -= len(audio)
            if missing <= 0:
                break
    return (played_s - sent_s - num_bytes / BYTES_PER_S) * 1000


async def measure(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with local_server() as target, grpc.aio.insecure_channel(target) as channel:
            arguments = ("--server", target, "--wyoming-listen", "127.0.0.1:0")
            with GatewayProcess(Path(folder) / "log", *arguments) as gateway:
                async with aiohttp.ClientSession(gateway.url) as http:
                    await eventually(lambda: _status(http), 200)
                    await _measure(channel, http, gateway.wyoming_port, rounds)


async def _measure(channel: grpc.aio.Channel, http: aiohttp.ClientSession, wyoming_port: int, rounds: int) -> None:
    stub = Stub(channel)
    num_bytes = len((await speak(stub, [config(), say(TEXT), end()])).pcm["u1"])
    print(f"{TEXT!r} lasts {num_bytes / BYTES_PER_S * 1000:.0f} ms; beyond it, ms, of {rounds} in turns:")
    doors: dict[str, Callable[[], AsyncIterator[bytes]]] = {
        "gRPC, words": partial(over_grpc, stub, mode=speak_pb2.COMMIT_MODE_TOKEN),
        "gRPC, sentences": partial(over_grpc, stub, mode=speak_pb2.COMMIT_MODE_SENTENCE),
        "Riva": partial(over_riva, channel),
        "WebSocket": partial(over_websocket, http),
        "WebSocket, sentences": partial(over_websocket, http, split_granularity="sentence"),
        "Cartesia": partial(over_cartesia, http),
        "Wyoming": partial(over_wyoming, wyoming_port),
        "HTTP, whole": partial(over_http, http),
    }
    beyond: dict[str, list[float]] = {name: [] for name in doors}
    for _ in range(rounds):
        for name, heard in doors.items():
            beyond[name].append(await beyond_ms(heard(), num_bytes))
    for name, values in beyond.items():
        print(f"{name:22} median {statistics.median(values):4.0f}, most {max(values):4.0f}")


async def _status(http: aiohttp.ClientSession) -> int:
    async with http.get("/ready") as response:
        return response.status


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    asyncio.run(measure(parser.parse_args().rounds))


if __name__ == "__main__":
    main()
