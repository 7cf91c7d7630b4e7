"""What the gateway costs: `python -m tests.measure.gateway_cost`. Prints first audio over gRPC and through the gateway
in turn, processor time per 80 ms of real-time streams, and memory with idle sockets.

Server, gateway and client are processes of their own; the server's engine makes audio at no cost, a frame each 80 ms
where real time matters: of each stream by itself, or of all streams at once, as the steps of an engine make them, and
also in the chunks that grow (1, 2, 4, 8, 12 frames), as an engine sends them unless it is told not to.
Others who use the machine make a chunk dearer, never cheaper, so the least of several rounds is told.
"""

import asyncio
import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from sonorant.client import AudioChunk, SpeechClient, synthesis_config
from tests.gateway.gateway_process import GatewayProcess
from tests.service.harness import eventually

NUM_CALLS = 300
NUM_STREAMS = 100
NUM_SOCKETS = 1000
NUM_ROUNDS = 4
FRAME_S = 0.08
REAL_TIME_S = 10.0
BY_ITSELF, IN_STEP, GROWING = "each by itself", "all streams at once", "in growing chunks"
TEXT = "one two three four five six seven " * 20
PCM = {"type": "session.config", "response_format": "pcm", "stream_audio": True}


async def serve(frame_s: float, pace: str) -> None:
    """The server's process."""
    from tests.service import fake_streams
    from tests.service.fake_engine import FakeEngine
    from tests.service.harness import served

    class InStep(FakeEngine):
        """Whoever asks how long a frame takes is told the time to the next step that is not half over."""

        @property
        def frame_s(self) -> float:
            now_s = time.monotonic()
            return (math.floor(now_s / frame_s + 0.5) + 1) * frame_s - now_s

        @frame_s.setter
        def frame_s(self, _: float) -> None: ...

    if pace != GROWING:
        fake_streams.CHUNK_RAMP = (1,)  # each frame by itself, as the least favourable listener gets them
    engine = (InStep if pace == IN_STEP else FakeEngine)(frame_s=frame_s, max_streams=2 * NUM_STREAMS)
    async with served(engine, max_sessions=2000) as here:
        print(json.dumps({"address": here.address}), flush=True)
        await asyncio.Event().wait()


@contextmanager
def server(frame_s: float, pace: str = BY_ITSELF) -> Iterator[str]:
    command = [sys.executable, "-m", "tests.measure.gateway_cost", "serve", str(frame_s), pace]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if address := json.loads(line).get("address"):
                yield address
                return
    finally:
        process.kill()
        process.wait()


@asynccontextmanager
async def behind_a_gateway(
    frame_s: float, pace: str = BY_ITSELF
) -> AsyncIterator[tuple[str, GatewayProcess, aiohttp.ClientSession]]:
    async with contextlib.AsyncExitStack() as stack:
        address = stack.enter_context(server(frame_s, pace))
        log = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "log"
        gateway = await asyncio.to_thread(GatewayProcess, log, "--server", address)
        stack.enter_context(gateway)
        connector = aiohttp.TCPConnector(limit=0)
        http = await stack.enter_async_context(aiohttp.ClientSession(gateway.url, connector=connector))
        await eventually(lambda: is_ready(http), True)
        yield address, gateway, http


async def is_ready(http: aiohttp.ClientSession) -> bool:
    async with http.get("/ready") as response:
        return response.status == 200


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def first_audio() -> None:
    """By a bare connection, too: what a listener's HTTP library does with a request is not the gateway's time.
    By sockets that are open, with the text in one message."""
    async with (
        behind_a_gateway(0.0) as (address, gateway, http),
        SpeechClient(address) as client,
        http.ws_connect("/v1/audio/speech/stream") as stream,
        http.ws_connect("/tts/websocket") as cartesia,
    ):
        await stream.send_json(PCM)
        body = {"input": "one two three", "response_format": "pcm"}
        host, port = gateway.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))

        async def by_grpc() -> AsyncIterator[None]:
            async for payload in client.stream("one two three", synthesis_config(encoding="pcm_s16le")):
                if isinstance(payload, AudioChunk):
                    yield

        async def by_aiohttp() -> AsyncIterator[None]:
            async with http.post("/v1/audio/speech", json=body) as response:
                async for _ in response.content.iter_any():
                    yield

        async def by_connection() -> AsyncIterator[None]:
            data = json.dumps(body)
            head = f"POST /v1/audio/speech HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(data)}\r\n\r\n"
            writer.write((head + data).encode())
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            while await reader.readexactly(int(await reader.readline(), 16) + 2) != b"\r\n":
                yield

        async def by_stream() -> AsyncIterator[None]:
            await stream.send_json({"type": "input.text", "text": "one two three"})
            await stream.send_json({"type": "input.done"})
            async for message in stream:
                if message.type is aiohttp.WSMsgType.BINARY:
                    yield
                elif message.json()["type"] == "session.done":
                    return

        async def by_cartesia() -> AsyncIterator[None]:
            await cartesia.send_json({"transcript": "one two three", "continue": False})
            async for message in cartesia:
                kind = message.json()["type"]
                if kind == "chunk":
                    yield
                elif kind == "done":
                    return

        ways = {
            "gRPC": by_grpc,
            "a bare HTTP connection": by_connection,
            "aiohttp": by_aiohttp,
            "WebSocket": by_stream,
            "Cartesia": by_cartesia,
        }
        times_ms: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(NUM_CALLS):
            for name, way in ways.items():
                begin_s = time.perf_counter()
                heard_s = [time.perf_counter() async for _ in way()]
                times_ms[name].append((heard_s[0] - begin_s) * 1000)
        writer.close()
    print(f"first audio, p50 of {NUM_CALLS} in turn:")
    for name, values in times_ms.items():
        added = statistics.median(b - a for a, b in zip(times_ms["gRPC"], values, strict=True))
        print(f"  {name}: {statistics.median(values):.2f} ms ({added:+.2f}), least {min(values):.2f} ms")


async def real_time(door: str, pace: str) -> float:
    """Processor time per 80 ms of audio, in microseconds."""
    async with behind_a_gateway(FRAME_S, pace) as (_, gateway, http):
        num_bytes = 0

        async def by_http() -> None:
            nonlocal num_bytes
            async with http.post("/v1/audio/speech", json={"input": TEXT, "response_format": "pcm"}) as response:
                async for data in response.content.iter_any():
                    num_bytes += len(data)

        async def by_socket(path: str, *messages: dict[str, Any]) -> None:
            nonlocal num_bytes
            async with http.ws_connect(path) as socket:
                for message in messages:
                    await socket.send_json(message)
                async for received in socket:
                    if received.type is aiohttp.WSMsgType.BINARY:
                        num_bytes += len(received.data)
                    elif "data" in (told := received.json()):
                        num_bytes += len(told["data"]) * 3 // 4

        texts = ({"type": "input.text", "text": TEXT}, {"type": "input.done"})
        listeners = {
            "HTTP": by_http,
            "WebSocket": lambda: by_socket("/v1/audio/speech/stream", PCM, *texts),
            "Cartesia": lambda: by_socket("/tts/websocket", {"context_id": "a", "transcript": TEXT, "continue": False}),
        }
        tasks = [asyncio.create_task(listeners[door]()) for _ in range(NUM_STREAMS)]
        await asyncio.sleep(2.0)
        begin, before = cpu_s(gateway.process.pid), num_bytes
        await asyncio.sleep(REAL_TIME_S)
        used_s, num_chunks = cpu_s(gateway.process.pid) - begin, (num_bytes - before) / 3840
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return used_s / num_chunks * 1e6


async def per_chunk() -> None:
    costs: dict[str, list[float]] = {}
    for _ in range(NUM_ROUNDS):
        for door in ("HTTP", "WebSocket", "Cartesia"):
            for pace in (BY_ITSELF, IN_STEP, GROWING):
                costs.setdefault(f"{door}, {pace}", []).append(await real_time(door, pace))
    print(f"microseconds of processor per 80 ms of {NUM_STREAMS} real-time streams, least of {NUM_ROUNDS} rounds:")
    for name, values in costs.items():
        print(f"  {name}: {min(values):.0f} ({', '.join(f'{value:.0f}' for value in values)})")


async def idle_sockets() -> None:
    async with behind_a_gateway(0.0) as (_, gateway, http), contextlib.AsyncExitStack() as stack:
        before = gateway.resident_mb
        for _ in range(NUM_SOCKETS):
            socket = await stack.enter_async_context(http.ws_connect("/v1/audio/speech/stream"))
            await socket.send_json(PCM)
        after = gateway.resident_mb
    print(f"memory: {before:.0f} MB, with {NUM_SOCKETS} idle sockets {after:.0f} MB")


async def hang_up() -> None:
    """From a listener's closing the connection to the end of their stream at the gateway."""
    async with behind_a_gateway(FRAME_S) as (_, _gateway, http):
        times = []
        for _ in range(20):
            response = await http.post("/v1/audio/speech", json={"input": TEXT, "response_format": "pcm"})
            await response.content.readany()
            begin_s = time.perf_counter()
            response.close()
            while True:
                text = await (await http.get("/metrics")).text()
                if 'gateway_streams{door="openai"} 0.0' in text:
                    break
            times.append(time.perf_counter() - begin_s)
    print(
        f"hang-up: stream over after {statistics.median(times) * 1000:.1f} ms (p50), {max(times) * 1000:.1f} ms at most"
    )


async def main() -> None:
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    await first_audio()
    await per_chunk()
    await idle_sockets()
    await hang_up()


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[2]), sys.argv[3]) if sys.argv[1:2] == ["serve"] else main())
