"""A server and a gateway that are started without stdin and may open few files, or whose output nobody reads; and a
gateway that finds no server."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from sonorant.client import AudioChunk, SpeechClient, synthesis_config
from sonorant.client.local_server import SERVICE
from tests.e2e.server_process import ServerProcess
from tests.free_port import free_port
from tests.gateway.gateway_process import GatewayProcess
from tests.service.harness import eventually
from tests.told_process import ToldProcess
from tests.warm_start import start

BARE = "ulimit -n 256 && exec <&-"
FEW_FILES = "at most 256 files may be open in each process"


@pytest.mark.rare
@pytest.mark.slow
async def test_a_server_without_stdin_and_with_few_files_serves_and_ends_in_order(
    tmp_path: Path,
) -> None:
    server = await asyncio.to_thread(lambda: ServerProcess(tmp_path / "log", "--device", "cpu", before=BARE))
    try:
        async with SpeechClient(server.address) as client:
            # The longest frames that callers may ask for, at the highest speed: 25 codec frames each.
            config = synthesis_config(speed=2.0, frame_duration_ms=1000)
            async with asyncio.timeout(60), client.speak(config) as session:
                await session.send_text("A second of audio at the highest speed takes two seconds of speech, and more.")
                await session.finish()
                heard = [event.payload.num_samples async for event in session if isinstance(event.payload, AudioChunk)]
        assert len(heard) >= 2 and heard[0] == 24_000
    finally:
        code = await asyncio.to_thread(server.stop)
    assert code == 0, server.log
    assert server.log.count(FEW_FILES) == 1


@pytest.mark.slow
async def test_a_server_whose_output_nobody_reads_speaks_and_ends_in_order() -> None:
    """Such as one that was started by a program that keeps its output in pipes until it ends, or whose terminal is
    behind a connection that stands still."""
    nobody, full = os.pipe()
    os.set_blocking(full, False)
    with suppress(BlockingIOError):
        while True:
            os.write(full, bytes(4096))
    os.set_blocking(full, True)
    address = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-c", SERVICE, "--device", "cpu", "--listen", address]
    server = await asyncio.to_thread(subprocess.Popen, command, stdout=full, stderr=full, start_new_session=True)
    try:
        async with SpeechClient(address) as client, asyncio.timeout(60):
            await client.wait_until_serving(60)
            assert (await client.synthesize("Good morning.")).audio
        server.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(server.wait, 60) == 0
    finally:
        server.kill()
        os.close(nobody)
        os.close(full)


class Starting(ToldProcess):
    """A server that is about to load its workers: it takes connections, and refuses calls."""

    def __init__(self, log: Path) -> None:
        self._address = ("127.0.0.1", free_port())
        listen = ("--device", "cpu", "--listen", "{}:{}".format(*self._address))
        super().__init__(log, start(log, sys.executable, SERVICE, listen))

    def _wait_until_ready(self) -> None:
        while self.process.poll() is None:
            with suppress(ConnectionError), socket.create_connection(self._address):
                return


def test_a_server_that_is_stopped_while_it_starts_has_not_failed(tmp_path: Path) -> None:
    """systemd would report the unit as failed."""
    starting = Starting(tmp_path / "log")
    code = starting.stop()
    assert code == 0, starting.log


async def test_a_gateway_without_stdin_tells_that_no_server_answers_and_ends_in_order(tmp_path: Path) -> None:
    gateway = await asyncio.to_thread(GatewayProcess, tmp_path / "log", "--server", "127.0.0.1:1", before=BARE)
    try:
        await eventually(lambda: "the gateway keeps trying 127.0.0.1:1: no answer" in gateway.log, True)
    finally:
        code = await asyncio.to_thread(gateway.stop)
    assert code == 0, gateway.log
    assert gateway.log.count(FEW_FILES) == 1
