"""The examples in other languages, where their tools are at hand."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import urllib.request
import wave
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.doors.conftest import ROOT, wait_until_ready
from tests.doors.judge import assert_idle
from tests.free_port import free_port

TEXT = "Words may come one by one."


@pytest.mark.skipif(shutil.which("npm") is None, reason="no Node.js here")
def test_node_speaks_and_tells_when_words_are_heard(server: str, tmp_path: Path) -> None:
    for part in ("clients/examples/node/package.json", "clients/examples/node/speak.js", "proto/released.binpb"):
        copy = tmp_path / part
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / part, copy)
    folder = tmp_path / "clients/examples/node"
    subprocess.run(["npm", "install", "--silent", "--no-audit"], cwd=folder, check=True, timeout=100)
    told = subprocess.run(
        ["node", "speak.js", "speech.wav", server],
        cwd=folder,
        input=TEXT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert [line.split()[-1] for line in told.stdout.splitlines()] == TEXT.split()
    with wave.open(str(folder / "speech.wav")) as file:
        assert file.getframerate() == 24_000 and file.getnframes() > 24_000
    asyncio.run(assert_idle(server))


def terminate(make: "subprocess.Popen[bytes]") -> None:
    """As a supervisor does it."""
    make.terminate()


def interrupt(make: "subprocess.Popen[bytes]") -> None:
    """As Ctrl-C does it."""
    os.killpg(make.pid, signal.SIGINT)


@contextmanager
def made_to_serve(tmp_path: Path, stop: Callable[["subprocess.Popen[bytes]"], None]) -> Iterator[str]:
    """The URL of the gateway of `make serve`; stopped in mid-speech, it ends that, and nothing is left."""
    server, gateway = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    arguments = [f"ARGS=--listen {server} --num-slots 4", f"GATEWAY=--listen {gateway} --server {server}"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            ["make", "--silent", "serve", *arguments],
            cwd=ROOT,
            env=environment | {"PYTHONPATH": ""},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        wait_until_ready(f"http://{gateway}")
        yield f"http://{gateway}"
        body = json.dumps({"input": "The house is by the river. " * 40, "response_format": "pcm", "seed": 1})
        speech = urllib.request.Request(f"http://{gateway}/v1/audio/speech", body.encode())
        with urllib.request.urlopen(speech, timeout=60) as response:
            stop(process)
            assert len(response.read()) > 20 * 48_000
        process.wait(30)
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, 0)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def test_make_serve_ends_in_good_order_on_ctrl_c(tmp_path: Path) -> None:
    with made_to_serve(tmp_path, interrupt):
        pass


def test_curl_gets_files_and_streams_of_what_make_serve_starts(tmp_path: Path) -> None:
    with made_to_serve(tmp_path, terminate) as url:
        script = ROOT / "clients/examples/curl.sh"
        subprocess.run(["sh", script, url, tmp_path], check=True, timeout=60)
    assert "data" in json.loads((tmp_path / "voices.json").read_text())
    assert (tmp_path / "hello.mp3").read_bytes()[:1] in (b"\xff", b"I")
    assert len((tmp_path / "hello.pcm").read_bytes()) > 24_000
    assert (
        (tmp_path / "hello.sse").read_text().rstrip().splitlines()[-1].startswith('data: {"type":"speech.audio.done"')
    )
