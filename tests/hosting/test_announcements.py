"""Covers: events on the stdout of a process, also when nobody can get them."""

import json
import subprocess
import sys

ANNOUNCE = "from sonorant.hosting.process import announce; announce('serving', port=1)"


def test_an_event_is_one_line_of_json() -> None:
    said = subprocess.run([sys.executable, "-c", ANNOUNCE], capture_output=True, check=True)
    assert json.loads(said.stdout) == {"event": "serving", "port": 1}
    assert said.stdout.endswith(b"\n")


def test_a_process_goes_on_if_the_disk_of_its_stdout_is_full() -> None:
    with open("/dev/full", "wb") as full:
        said = subprocess.run([sys.executable, "-c", ANNOUNCE], stdout=full, stderr=subprocess.PIPE, text=True)
    assert said.returncode == 0
    assert "the event 'serving' cannot be told on stdout: No space left on device" in said.stderr
