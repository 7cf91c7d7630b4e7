"""`make demo` with the real server: it speaks, and leaves nothing running however it ends."""

import asyncio
import os
import signal
import sys
import time
import uuid
import wave
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sonorant.client.local_server import ServerFailed, local_server


@asynccontextmanager
async def demo(folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """The demo as a process; afterwards there must be no process left that descends from it."""
    mark = f"DEMO_TEST={uuid.uuid4()}"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sonorant.cli.demo"),
        cwd=folder,
        env={**os.environ, **dict([mark.split("=")])},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    yield process
    assert process.returncode is not None
    assert marked_processes(mark, patience_s=20.0 if process.returncode == -signal.SIGKILL else 0.0) == []


def marked_processes(mark: str, patience_s: float) -> list[str]:
    """Command lines of the processes with this setting in their environment, which children inherit."""
    deadline = time.monotonic() + patience_s
    while (found := _marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def _marked(mark: str) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in folder.joinpath("environ").read_bytes():
                found.append(folder.joinpath("cmdline").read_text().replace("\0", " "))
        except OSError:  # it ended just now, or is not ours
            continue
    return found


@pytest.mark.slow
async def test_demo_speaks_and_stops_its_server(tmp_path: Path) -> None:
    async with demo(tmp_path) as process:
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    for word in (b"TTFA", b"RTF", b"gaps", b"wrote demo.wav; the server is stopped"):
        assert word in output
    with wave.open(str(tmp_path / "demo.wav")) as file:
        assert file.getnframes() / file.getframerate() > 2


async def test_wrong_arguments_of_the_demo_start_no_server(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sonorant.cli.demo", "--voice", "wren"), cwd=tmp_path, stderr=asyncio.subprocess.PIPE
    )
    _, stderr = await process.communicate()
    assert process.returncode == 2
    assert b"unrecognized arguments: --voice wren" in stderr


@pytest.mark.rare
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("after", [b"starting a server", b"$ sonorant say"])
async def test_a_demo_that_is_stopped_stops_its_server(tmp_path: Path, number: signal.Signals, after: bytes) -> None:
    async with demo(tmp_path) as process:
        assert process.stdout is not None
        while after not in await process.stdout.readline():
            pass
        await asyncio.sleep(0.3)
        process.send_signal(number)
        output, _ = await process.communicate()
    assert process.returncode == 130
    assert b"Traceback" not in output


async def test_the_server_of_a_killed_demo_ends(tmp_path: Path) -> None:
    async with demo(tmp_path) as process:
        assert process.stdout is not None
        await process.stdout.readline()
        await asyncio.sleep(1.0)
        process.kill()
        await process.wait()


async def test_a_server_that_cannot_start_shows_its_log(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ServerFailed, match=r"(?s)ended with status 1:.*config\.json"):
        async with local_server(["--model", str(tmp_path)]):
            pass
