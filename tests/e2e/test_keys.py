"""Covers: limits of API keys over several server processes, which count together what each lets in."""

import asyncio
import signal
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from os import kill
from pathlib import Path
from typing import Any

import grpc
import pytest

from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeStreamRequest
from sonorant.tts.v1.voice_service_pb2 import CreateVoiceRequest, UploadVoiceRequest
from sonorant.tts.v1.voice_service_pb2_grpc import VoiceServiceStub
from tests.e2e.server_process import ServerProcess, samples
from tests.free_port import free_port
from tests.service.harness import Stub, eventually
from tests.service.keys import ADA, BOB, bearer, table
from tests.service.visitors import Visitor, let_in

pytestmark = pytest.mark.slow

KEY = bearer(ADA)
LIMITS = "max_sessions = 6\nmax_text_chars_per_minute = 600"
ONE_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)  # for each channel
NUM_CHANNELS = 12  # that all of them come to the same process is as good as impossible


class ServerProcesses(ServerProcess):
    """Two server processes, with one key that has limits and one that has none."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.keys = folder / "keys.toml"
        self.keys.write_text(table("ada", ADA, LIMITS) + table("bob", BOB))
        files = ("--api-keys", str(self.keys), "--voices-dir", str(folder / "voices"))
        super().__init__(folder / "log", "--processes", "2", *files, *arguments)

    def _wait_until_ready(self) -> None:
        listening: Any = self.wait_for("listening")
        self.port, self.metrics_port = int(listening["port"]), int(listening["metrics_port"])
        self._processes: list[dict[str, int]] = listening["processes"]
        self.wait_for("serving")

    def pid_with_sessions(self) -> int:
        """The id of a server process that has some."""
        for process in self._processes:
            if any(each.name == "tts_sessions" and each.value for each in samples(process["metrics_port"])):
                return process["pid"]
        raise AssertionError("nobody has any")

    @asynccontextmanager
    async def channels(self) -> AsyncIterator[list[grpc.aio.Channel]]:
        async with AsyncExitStack() as stack:
            opened = (grpc.aio.insecure_channel(self.address, ONE_CONNECTION) for _ in range(NUM_CHANNELS))
            yield [await stack.enter_async_context(channel) for channel in opened]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcesses]:
    with ServerProcesses(tmp_path_factory.mktemp("server")) as process:
        yield process


async def visitors(
    channels: list[grpc.aio.Channel], calls_of_each: int = 1, *refusals: grpc.StatusCode
) -> list[Visitor]:
    """Those that are let in, of so many on each connection."""
    return await let_in([Visitor(Stub(channel), *refusals) for channel in channels for _ in range(calls_of_each)])


async def test_a_key_for_six_gets_six_of_all_processes_or_of_one(server: ServerProcesses) -> None:
    async with server.channels() as channels:
        inside = await visitors(channels)
        assert len(inside) == 6
        await asyncio.gather(*(visitor.leave() for visitor in inside))

        async def on_one_connection() -> int:
            inside = await visitors(channels[:1], 8)
            await asyncio.gather(*(visitor.leave() for visitor in inside))
            return len(inside)

        await eventually(on_one_connection, 6)


@pytest.mark.rare
async def test_sessions_of_a_killed_process_are_free_within_a_second_and_of_a_killed_owner_too(tmp_path: Path) -> None:
    listen = ("--listen", f"127.0.0.1:{free_port()}")
    with ServerProcesses(tmp_path, *listen) as server:
        async with server.channels() as channels, server.channels() as others:
            before = await visitors(channels)
            assert len(before) == 6
            after: list[Visitor] = []

            async def num_inside() -> int:
                after.extend(await visitors(others, 1, grpc.StatusCode.UNAVAILABLE))
                return len(after) + sum(visitor.is_inside for visitor in before)

            assert await num_inside() == 6 and not after
            kill(server.pid_with_sessions(), signal.SIGKILL)
            await eventually(lambda: all(visitor.is_inside for visitor in before), False)
            await eventually(num_inside, 6, timeout_s=1.0)
            assert after
        server.process.kill()
        server.process.wait(60)
        with ServerProcesses(tmp_path, *listen) as again:
            async with again.channels() as channels:
                assert len(await visitors(channels)) == 6


async def test_the_text_of_a_minute_is_that_of_all_processes(server: ServerProcesses) -> None:
    """A call that has its metadata has paid for its text."""
    request = SynthesizeStreamRequest(text="abcdefghi " * 2)
    began_s, paid = time.monotonic(), 0
    async with server.channels() as channels:

        async def pay(channel: grpc.aio.Channel) -> int:
            call = Stub(channel).SynthesizeStream(request, metadata=KEY)
            has_paid = bool(await call.initial_metadata())
            if not has_paid:
                assert await call.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            call.cancel()
            return len(request.text) * has_paid

        for _ in range(6):
            for begin in range(0, NUM_CHANNELS, 4):  # fewer than the sessions that the key may have
                paid += sum(await asyncio.gather(*map(pay, channels[begin : begin + 4])))
    assert 500 <= paid <= 1.25 * (600 + 10 * (time.monotonic() - began_s))


async def test_uploads_of_one_key_leave_the_last_quarter_in_whichever_process(server: ServerProcesses) -> None:
    async with server.channels() as channels:
        begin = UploadVoiceRequest(create=CreateVoiceRequest(voice_id="anna", reference={"transcript": "hello"}))
        calls = [VoiceServiceStub(channel).UploadVoice(metadata=KEY) for channel in channels for _ in range(2)]
        for call in calls:
            with suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):  # it was refused already
                await call.write(begin)
        await eventually(lambda: sum(call.done() for call in calls), len(calls) - 12)
        for call in calls:
            call.cancel()


async def test_ready_tells_of_a_faulty_file_of_keys_until_it_is_mended(server: ServerProcesses) -> None:
    def ready() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.metrics_port}/ready", timeout=60) as response:
            return str(response.read().decode())

    def put(text: str) -> None:
        (server.keys.parent / "new.toml").write_text(text)
        (server.keys.parent / "new.toml").replace(server.keys)

    def num_warnings() -> int:
        return ready().count("unknown max_sesions; did you mean max_sessions?")

    right = server.keys.read_text()
    assert await asyncio.to_thread(ready) == "ready\n"
    put(right.replace("max_sessions", "max_sesions"))
    await eventually(lambda: asyncio.to_thread(num_warnings), 1)
    put(right)
    await eventually(lambda: asyncio.to_thread(ready), "ready\n")
