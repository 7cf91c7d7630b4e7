"""Ctrl-C in a program's first moments, when it does nothing but import."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = ["sonorant.asr", "sonorant.cli", "sonorant.cli.demo", "sonorant.gateway", "sonorant.service"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_ctrl_c_while_importing_is_no_traceback(program: str, tmp_path: Path) -> None:
    (tmp_path / "grpc.py").write_text("import time; print('importing', flush=True); time.sleep(60)")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    with subprocess.Popen(
        [sys.executable, "-m", program],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "importing\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == -signal.SIGINT
        assert process.stderr.read() == ""
