"""Several server processes behind one port and before the same workers: one that is killed costs nobody a sentence."""

import asyncio
import json
import os
import re
import shutil
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from sonorant.client import Resumed, SpeechClient, UtteranceDone, synthesis_config, voice_mix
from sonorant.engine import BUILTIN_VOICE_DIR
from sonorant.tts.v1.synthesis_pb2 import FINISH_REASON_COMPLETED
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeRequest
from tests.e2e._support import (
    CONFIG,
    MOST_CONNECTIONS,
    ONE_CONNECTION,
    ServerProcesses,
    calls_of_synthesize,
    clients_of_each,
)
from tests.e2e.server_process import refused
from tests.engine.mps_stand_in import install_mps
from tests.free_port import free_port
from tests.service.harness import Stub, assert_same_audio, eventually

pytestmark = pytest.mark.slow

TEXT = "Words may come one by one, and none of them is lost. Not even when the process is."


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


def test_each_process_says_where_the_time_of_its_start_went(server: ServerProcesses) -> None:
    told = re.findall(r"start of ([\w -]+), [\d.]+ to ([\d.]+) s: [^\"]*\b(\w+) [\d.]+", server.log)
    ends_s = {name: float(end_s) for name, end_s, _ in told}
    num_lines = Counter(name for name, _, _ in told)
    assert [num_lines[each] for each in ("sonorant-talker", "sonorant-code2wav", "server process")] == [1, 1, 2]
    assert ends_s["server"] >= ends_s["server process"] > max(ends_s["sonorant-talker"], ends_s["sonorant-code2wav"])


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
        await client.create_voice("duet", mix=voice_mix({"linden": 1, "wren": 1}))
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
    """Sentences of the other process do not even notice, and the workers live on."""
    with ServerProcesses(tmp_path / "log") as server:
        async with AsyncExitStack() as stack:
            clients = [client for each in await clients_of_each(stack, server, 2) for client in each]
            whole: list[bytes] = []
            assert await listen(clients[0], whole, lead_ms=0) == 0
            workers = server.workers
            heard: list[list[bytes]] = [[] for _ in clients]
            # Those of the other process bear 1.4 s of silence: it has little of the machine while a new one starts.
            listening = [
                asyncio.create_task(listen(client, each, lead_ms=lead_ms))
                for client, each, lead_ms in zip(clients, heard, (600, 600, 2000, 2000), strict=True)
            ]
            await eventually(lambda: min(map(len, heard)) >= 4, True)
            os.kill(server.processes[0]["pid"], signal.SIGKILL)
            resumed = await asyncio.gather(*listening)
            assert min(resumed[:2]) >= 1  # more, if the other process was only busy for a while
            assert resumed[2:] == [0, 0]
        for each in heard:
            assert_same_audio(b"".join(each), b"".join(whole))
        await eventually(lambda: "serves again" in server.log, True)
        assert (server.value("tts_server_process_restarts_total"), server.value("tts_worker_restarts_total")) == (1, 0)
        assert server.workers == workers
        await eventually(lambda: server.value("tts_pair_streams"), 0)
        async with AsyncExitStack() as stack:
            before = await synthesized(stack, server.address)
            await eventually(lambda: len(server.serving_pids()), 2)
            for _ in range(8):  # some of them come to the process that is new
                assert_same_audio(await synthesized(stack, server.address), before)
        assert server.stop() == 0


@pytest.mark.rare
@pytest.mark.parametrize("worker", ["talker", "code2wav"])
async def test_a_worker_that_dies_costs_no_client_of_any_process_a_sentence(tmp_path: Path, worker: str) -> None:
    with ServerProcesses(tmp_path / "log") as server:
        async with AsyncExitStack() as stack:
            clients = [client for each in await clients_of_each(stack, server, 2) for client in each]
            whole: list[bytes] = []
            await listen(clients[0], whole, lead_ms=0)
            heard: list[list[bytes]] = [[] for _ in clients]
            listening = [
                asyncio.create_task(listen(client, each, lead_ms=600))
                for client, each in zip(clients, heard, strict=True)
            ]
            await eventually(lambda: min(map(len, heard)) >= 4, True)
            os.kill(server.worker(worker), signal.SIGKILL)
            assert await asyncio.gather(*listening) == [0] * 4
        for each in heard:
            assert_same_audio(b"".join(each), b"".join(whole))
        assert "restarting both workers" in server.log
        assert (server.value("tts_server_process_restarts_total"), server.value("tts_worker_restarts_total")) == (0, 1)
        assert server.stop() == 0
        loggers = {json.loads(line)["logger"].split(".")[1] for line in server.log.splitlines()}
        assert {"engine", "service"} <= loggers, "all processes log in one way"


async def test_one_scrape_shows_all_processes(server: ServerProcesses) -> None:
    async with AsyncExitStack() as stack:
        while not all(server.num_calls(number) for number in range(2)):
            await synthesized(stack, server.address)
    assert calls_of_synthesize(server.metrics_port) == sum(server.num_calls(number) for number in range(2))
    assert (server.value("tts_slots"), server.value("tts_pair_ready")) == (32, 1)
    assert server.is_ready


def test_all_processes_use_the_same_workers(server: ServerProcesses) -> None:
    assert sorted(server.workers.values()) == ["sonorant-code2w", "sonorant-talker"]


@pytest.mark.rare
async def test_a_drain_lets_all_processes_finish_what_they_say(tmp_path: Path) -> None:
    with ServerProcesses(tmp_path / "log") as server:
        clients = [SpeechClient(server.address) for _ in range(4)]
        heard: list[list[bytes]] = [[] for _ in clients]
        listening = [
            asyncio.create_task(listen(client, each, 600)) for client, each in zip(clients, heard, strict=True)
        ]
        await eventually(lambda: min(map(len, heard)) >= 2, True)
        server.process.send_signal(signal.SIGTERM)
        assert await asyncio.gather(*listening) == [0] * len(clients)
        assert await asyncio.to_thread(server.process.wait, 60) == 0
        for client in clients:
            await client.close()
    for each in heard:
        assert_same_audio(b"".join(each), b"".join(heard[0]))


@pytest.mark.rare
@pytest.mark.parametrize("processes", [1, 2])
async def test_nothing_outlives_the_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int) -> None:
    """Not even while a session is open, for which a drain would wait much longer."""
    started = install_mps(tmp_path, monkeypatch)
    flags = ("--processes", str(processes), "--device", "cpu", "--mps", "true")
    with ServerProcesses(tmp_path / "log", *flags) as server:
        async with SpeechClient(server.address) as client, client.speak() as session:
            await session.send_text("Words may come one by one, ")
            await anext(aiter(session))
            names = server.child_ids()
            assert len(names) == processes + 4, "two workers, a fork server and an MPS daemon"
            server.process.kill()
            await eventually(lambda: [pid for pid in names if is_running(pid)], [])
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", server.port), timeout=60)
        _, directory = started.read_text().split()
        await eventually(lambda: os.path.exists(directory), False)


@pytest.mark.rare
async def test_systemd_hears_of_it_once_the_server_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "socket"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(tmp_path / "socket"))
        heard.settimeout(60)
        with ServerProcesses(tmp_path / "log", "--processes", "1") as server:
            assert heard.recv(100) == b"READY=1"
            async with AsyncExitStack() as stack:
                assert await synthesized(stack, server.address)
            os.kill(server.serving_pid, signal.SIGKILL)
            await eventually(lambda: "serves again" in server.log, True)
        heard.settimeout(0)
        with pytest.raises(BlockingIOError):
            heard.recv(100)


@pytest.mark.rare
async def test_a_process_that_dies_again_and_again_ends_the_server(tmp_path: Path) -> None:
    with ServerProcesses(tmp_path / "log") as server:
        doomed = server.processes[1]["pid"]
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


@pytest.mark.rare
def test_the_workers_have_one_mps_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = install_mps(tmp_path, monkeypatch)
    with ServerProcesses(tmp_path / "log", "--device", "cpu", "--mps", "true") as server:
        _, directory = started.read_text().split()
        assert list(server.child_ids().values()).count("sonorant-mps") == 1
        ready = [line for line in server.log.splitlines() if " is ready: {" in line]
        assert len(ready) == 2 and all(f"'CUDA_MPS_PIPE_DIRECTORY': '{directory}'" in line for line in ready)
    assert not Path(directory).exists()


def is_running(pid: int) -> bool:
    """Whether there is such a process, other than one that has ended and was adopted by nobody who asks."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def said_by_one_that_cannot_start(log: Path, *arguments: str) -> str:
    code, said = refused(log, "--processes", "2", *arguments)
    assert code == 1
    return said


def test_a_port_in_use_is_told_at_once(server: ServerProcesses, tmp_path: Path) -> None:
    """Also by a server that shares it among its own processes."""
    said = said_by_one_that_cannot_start(tmp_path / "log", "--listen", server.address)
    assert "is another server running there?" in said


@pytest.mark.rare
def test_a_process_that_cannot_start_ends_the_others(tmp_path: Path) -> None:
    """Its admin port, the second one counted up, is in use."""
    with socket.create_server(("127.0.0.1", 0)) as used:
        taken = used.getsockname()[1]
        ports = ("--listen", f"127.0.0.1:{free_port()}", "--admin-listen", f"127.0.0.1:{taken - 1}")
        said = said_by_one_that_cannot_start(tmp_path / "log", *ports)
    assert f"cannot listen on 127.0.0.1:{taken}" in said and "server process 2 ended with status 1" in said


@pytest.mark.rare
def test_workers_that_cannot_load_end_the_server(tmp_path: Path) -> None:
    model = shutil.copytree(BUILTIN_VOICE_DIR, tmp_path / "voice")
    (model / "model.safetensors").write_bytes(b"nonsense")
    said = said_by_one_that_cannot_start(tmp_path / "log", "--model", str(model))
    assert "cannot start the engine" in said


def test_files_are_read_before_the_model_is_loaded(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.pem")
    said = said_by_one_that_cannot_start(tmp_path / "log", "--tls-certificate", missing, "--tls-key", missing)
    assert missing in said and "is ready: {" not in said
