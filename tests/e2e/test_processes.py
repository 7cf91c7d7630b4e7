"""Several server processes behind one port: they share the work, and one that is killed costs nobody a sentence."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from sonorant.client import Resumed, SpeechClient, UtteranceDone, synthesis_config, voice_mix
from sonorant.tts.v1.synthesis_pb2 import FINISH_REASON_COMPLETED
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeRequest
from tests.e2e.server_process import ServerProcess, samples
from tests.engine.mps_stand_in import install_mps
from tests.free_port import free_port
from tests.service.harness import Stub, assert_same_audio, eventually

pytestmark = pytest.mark.slow

CONFIG: dict[str, Any] = {"sampling": {"do_sample": True, "seed": 7}}
ONE_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)  # for each channel
TEXT = "Words may come one by one, and none of them is lost. Not even when the process is."
MOST_CONNECTIONS = 64  # that all of them come to the same process is as good as impossible


class ServerProcesses(ServerProcess):
    """`python -m sonorant.service --processes 2` with the built-in voice."""

    def __init__(self, log: Path, *arguments: str) -> None:
        super().__init__(log, "--processes", "2", *arguments)

    def _wait_until_ready(self) -> None:
        listening: Any = self.wait_for("listening")
        self.port = int(listening["port"])
        self.parts: list[dict[str, int]] = listening["processes"]
        self.wait_for("serving")

    def num_calls(self, number: int) -> float:
        """How many calls of Synthesize a process has handled."""
        self.metrics_port = self.parts[number]["metrics_port"]
        told = [sample for sample in samples(self) if sample.name == "grpc_server_handled_total"]
        return sum(sample.value for sample in told if sample.labels["method"].endswith("/Synthesize"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcesses]:
    folder = tmp_path_factory.mktemp("server")
    with ServerProcesses(folder / "log", "--voices-dir", str(folder / "voices")) as process:
        yield process


async def synthesized(stack: AsyncExitStack, address: str, config: dict[str, Any] = CONFIG) -> bytes:
    """Over a connection of its own."""
    channel = await stack.enter_async_context(grpc.aio.insecure_channel(address, ONE_CONNECTION))
    response = await Stub(channel).Synthesize(SynthesizeRequest(text="Hello.", config=config))
    return bytes(response.audio)


async def test_connections_are_spread_and_all_processes_speak_alike(server: ServerProcesses) -> None:
    async with AsyncExitStack() as stack:
        heard = [await synthesized(stack, server.address)]
        while not all(server.num_calls(number) for number in range(2)):
            assert len(heard) < MOST_CONNECTIONS
            heard.append(await synthesized(stack, server.address))
    for audio in heard:
        assert_same_audio(audio, heard[0])


async def test_a_voice_is_known_to_all_processes(server: ServerProcesses) -> None:
    async with SpeechClient(server.address) as client:
        await client.create_voice("duet", mix=voice_mix({"rms": 1, "slt": 1}))
    before = [server.num_calls(number) for number in range(2)]
    config = {**CONFIG, "voice": {"voice_id": "duet"}}
    async with AsyncExitStack() as stack:
        heard = [await synthesized(stack, server.address, config)]
        while any(server.num_calls(number) == before[number] for number in range(2)):
            assert len(heard) < MOST_CONNECTIONS
            heard.append(await synthesized(stack, server.address, config))
    for audio in heard:
        assert_same_audio(audio, heard[0])


async def listen(client: SpeechClient, heard: list[bytes], lead_ms: int) -> int:
    """How often the session was resumed."""
    num_resumed = 0
    async with client.speak(synthesis_config(seed=7, do_sample=True), max_lead_ms=lead_ms) as session:
        await session.send_text(TEXT)
        await session.finish()
        async for event in session:
            if isinstance(event.payload, Resumed):
                num_resumed += 1
            elif isinstance(event.payload, UtteranceDone):
                assert event.payload.reason == FINISH_REASON_COMPLETED
            elif audio := getattr(event.payload, "data", b""):
                heard.append(audio)
    return num_resumed


async def test_a_sentence_outlives_its_process_which_is_replaced(tmp_path: Path) -> None:
    with ServerProcesses(tmp_path / "log") as server:
        async with SpeechClient(server.address) as client:
            whole: list[bytes] = []
            assert await listen(client, whole, lead_ms=0) == 0
            broken: list[bytes] = []
            listening = asyncio.create_task(listen(client, broken, lead_ms=600))
            await eventually(lambda: len(broken) >= 4, True, timeout_s=60)
            (speaking,) = [part["pid"] for part in server.parts if is_connected(part["pid"], server.port)]
            os.kill(speaking, signal.SIGKILL)
            assert await listening == 1
        assert_same_audio(b"".join(broken), b"".join(whole))
        await eventually(lambda: "serves again" in server.log, True, timeout_s=60)
        assert server.stop() == 0


def is_connected(pid: int, port: int) -> bool:
    """Whether a client is connected to this port of this process."""
    sockets = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            sockets.add(os.readlink(link))
        except FileNotFoundError:
            continue
    tables = [Path(f"/proc/{pid}/net/{kind}").read_text() for kind in ("tcp", "tcp6")]
    rows = [row.split() for table in tables for row in table.splitlines()[1:]]
    connected = [row for row in rows if row[1].endswith(f":{port:04X}") and row[3] == "01"]
    return any(f"socket:[{row[9]}]" in sockets for row in connected)


async def test_a_drain_lets_all_processes_finish_what_they_say(tmp_path: Path) -> None:
    with ServerProcesses(tmp_path / "log") as server:
        clients = [SpeechClient(server.address) for _ in range(4)]
        heard: list[list[bytes]] = [[] for _ in clients]
        listening = [
            asyncio.create_task(listen(client, each, 600)) for client, each in zip(clients, heard, strict=True)
        ]
        await eventually(lambda: min(map(len, heard)) >= 2, True, timeout_s=60)
        server.process.send_signal(signal.SIGTERM)
        assert await asyncio.gather(*listening) == [0] * len(clients)
        assert await asyncio.to_thread(server.process.wait, 60) == 0
        for client in clients:
            await client.close()
    for each in heard:
        assert_same_audio(b"".join(each), b"".join(heard[0]))


async def test_no_process_outlives_the_one_that_keeps_them(tmp_path: Path) -> None:
    with ServerProcesses(tmp_path / "log") as server:
        server.process.kill()
        await eventually(lambda: [Path(f"/proc/{part['pid']}").exists() for part in server.parts], [False] * 2)


async def test_a_process_that_dies_again_and_again_ends_the_server(tmp_path: Path) -> None:
    with ServerProcesses(tmp_path / "log") as server:
        doomed = server.parts[1]["pid"]
        kept = server.child_ids().keys() - {doomed}
        killed = set()
        while server.process.poll() is None:
            for pid in server.child_ids().keys() - kept - killed:
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
            await asyncio.sleep(0.05)
        assert server.stop() == 1
        assert len(killed) == 5, server.log
        assert "server process 2 ended with status -9" in server.log
        assert not kept & server.child_ids().keys()


def test_the_workers_of_all_processes_share_one_mps_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon of each process would let them take turns on the GPU."""
    started = install_mps(tmp_path, monkeypatch)
    with ServerProcesses(tmp_path / "log", "--device", "cpu", "--mps", "true") as server:
        _, directory = started.read_text().split()
        assert list(server.child_ids().values()).count("sonorant-mps") == 1
        ready = [line for line in server.log.splitlines() if " is ready: {" in line]
        assert len(ready) == 4 and all(f"'CUDA_MPS_PIPE_DIRECTORY': '{directory}'" in line for line in ready)
    assert not Path(directory).exists()


def refused(*arguments: str) -> str:
    """What a server says that cannot start."""
    command = [sys.executable, "-m", "sonorant.service", "--processes", "2", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1 and not ended.stdout
    return ended.stderr


def test_a_port_in_use_is_told_at_once(server: ServerProcesses) -> None:
    """Also by a server that shares it among its own processes."""
    assert "is another server running there?" in refused("--listen", server.address)


def test_a_process_that_cannot_start_ends_the_others(server: ServerProcesses) -> None:
    """Its metrics port, the second one counted up, is in use."""
    taken = server.parts[0]["metrics_port"]
    said = refused("--listen", f"127.0.0.1:{free_port()}", "--metrics-listen", f"127.0.0.1:{taken - 1}")
    assert f"cannot listen on 127.0.0.1:{taken}" in said and "server process 2 ended with status 1" in said
