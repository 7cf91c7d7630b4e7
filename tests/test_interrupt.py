"""Signals in a program's first moments, when it does nothing but import."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.own_mounts import unshared

PROGRAMS = ["sonorant.asr", "sonorant.cli", "sonorant.cli.demo", "sonorant.gateway", "sonorant.service"]
SERVERS = ["sonorant.gateway", "sonorant.service"]


@contextmanager
def importing(folder: Path, *command: str) -> "Iterator[subprocess.Popen[str]]":
    """A program that hangs in an import."""
    (folder / "grpc.py").write_text("import time; print('importing', flush=True); time.sleep(60)")
    path = os.pathsep.join([str(folder), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "importing\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("program", PROGRAMS)
def test_ctrl_c_while_importing_is_no_traceback(program: str, tmp_path: Path) -> None:
    with importing(tmp_path, sys.executable, "-m", program) as process:
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == -signal.SIGINT
        assert process.stderr is not None and process.stderr.read() == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("program", SERVERS)
def test_the_first_process_of_a_container_can_be_stopped_while_importing(
    program: str, number: signal.Signals, tmp_path: Path
) -> None:
    """Linux does not let it die of a signal that it has no handler for. `env`: these tests may run under nohup."""
    first = *unshared("--pid", "--fork", "--kill-child"), "env", "--default-signal=HUP"
    with importing(tmp_path, *first, sys.executable, "-m", program) as outside:
        [inside] = Path(f"/proc/{outside.pid}/task/{outside.pid}/children").read_text().split()
        os.kill(int(inside), number)
        assert outside.wait(10) == 128 + number


@pytest.mark.parametrize("program", SERVERS)
def test_under_nohup_the_end_of_the_terminal_stops_nothing(program: str, tmp_path: Path) -> None:
    with importing(tmp_path, "sh", "-c", "trap '' HUP && exec \"$@\"", "sh", sys.executable, "-m", program) as process:
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == -signal.SIGTERM
