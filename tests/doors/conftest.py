"""Stock clients against a real server: the frameworks in an environment of their own, the server in the project's."""

import asyncio
import fcntl
import json
import os
import struct
import subprocess
import tempfile
import threading
import time
import urllib.request
import wave
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from sonorant.client import SpeechClient, synthesis_config
from tests.doors.judge import HEARING_HZ

ROOT = Path(__file__).resolve().parents[2]
SERVER_PYTHON = os.environ.get("DOORS_SERVER_PYTHON", str(ROOT / ".venv/bin/python"))
SOURCES = ("clients", "proto", "service", "engine")
SPEAKING_HZ = 24_000  # of the agents
METRICS = ("--metrics-listen", "127.0.0.1:0")


@contextmanager
def running_server(*arguments: str) -> Iterator[str]:
    """HOST:PORT of a server on the built-in voice."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(str(ROOT / source) for source in SOURCES)}
    command = [SERVER_PYTHON, "-m", "sonorant.service", "--listen", "127.0.0.1:0", *METRICS, *arguments]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        try:
            assert process.stdout is not None
            events = {event["event"]: event for event in map(json.loads, _until_serving(process.stdout))}
            if "serving" not in events:
                log.seek(0)
                raise AssertionError(f"the server ended before it was ready:\n{log.read().decode()}")
            yield f"127.0.0.1:{events['serving']['port']}"
        finally:
            process.terminate()
            process.wait(30)
            process.stdout.close()


def wait_until_ready(url: str) -> None:
    """Until the gateway there has a server that serves."""
    for _ in range(1200):
        try:
            urllib.request.urlopen(f"{url}/ready", timeout=5).close()
            return
        except OSError:  # nobody listens yet, or it is not ready
            time.sleep(0.1)
    raise AssertionError("the gateway is not ready")


def _until_serving(lines: Iterable[str]) -> Iterator[str]:
    """Up to the line that says that it serves."""
    for line in lines:
        yield line
        if '"serving"' in line:
            return


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_server("--voices-dir", str(tmp_path_factory.mktemp("voices"))) as target:
        yield target


def silence(duration_s: float) -> bytes:
    return bytes(2 * int(duration_s * HEARING_HZ))


@pytest.fixture(scope="session")
def lines(server: str) -> tuple[bytes, bytes]:
    """What a caller says at HEARING_HZ: he asks for the weather, and interrupts the answer, of eleven seconds."""

    async def record() -> list[bytes]:
        async with SpeechClient(server) as client:
            config = synthesis_config(voice="wren", sample_rate_hz=HEARING_HZ, seed=1)
            lines = ("What is the weather tomorrow?", "Thank you, that is enough.")
            return [(await client.synthesize(line, config)).audio for line in lines]

    question, interruption = asyncio.run(record())
    return question, interruption


@pytest.fixture(scope="session")
def caller_wav(lines: tuple[bytes, bytes], tmp_path_factory: pytest.TempPathFactory) -> str:
    """A caller who interrupts while the answer is spoken: it begins when the question is recognized, which may take
    some seconds."""
    path = tmp_path_factory.mktemp("caller") / "caller.wav"
    question, interruption = lines
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(HEARING_HZ)
        file.writeframes(silence(0.5) + question + silence(6) + interruption + silence(5))
    return str(path)


@contextmanager
def attentive_caller(lines: tuple[bytes, bytes], recording: Path) -> Iterator[str]:
    """The path of a caller who interrupts once two seconds of the answer are in the recording, whenever that is: a
    pipe, for agents that read it as they go."""
    path = recording.with_name("caller")
    os.mkfifo(path)
    thread = threading.Thread(target=_say_in_turn, args=(path, lines, recording), daemon=True)
    thread.start()
    try:
        yield str(path)
    finally:
        thread.join(60)


def _say_in_turn(path: Path, lines: tuple[bytes, bytes], recording: Path) -> None:
    question, interruption = lines
    endless = (1 << 31) - 100
    sizes = struct.pack("<IHHIIHH", 16, 1, 1, HEARING_HZ, 2 * HEARING_HZ, 2, 16)
    riff, data = (struct.pack("<I", size) for size in (endless + 36, endless))
    header = b"RIFF" + riff + b"WAVEfmt " + sizes + b"data" + data
    with suppress(BrokenPipeError), path.open("wb", buffering=0) as pipe:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 4096)  # an eighth of a second: he hears soon what is in the recording
        pipe.write(header + silence(0.5) + question)
        until_s = time.monotonic() + 60
        while recording.stat().st_size < 2 * 2 * SPEAKING_HZ and time.monotonic() < until_s:
            pipe.write(silence(0.02))
        pipe.write(interruption + silence(15))  # in which he hears the answer, on a busy machine, too


@pytest.fixture(scope="session")
def server_that_clones() -> Iterator[str]:
    with running_server("--model", "builtin_base") as target:
        yield target
