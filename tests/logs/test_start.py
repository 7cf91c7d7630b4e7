"""The line that says where the time of a start went."""

import logging
import os
import subprocess
import sys

import pytest

from sonorant.logs import start

CODE = """
import logging, time
from sonorant.logs import start
logging.basicConfig(level=logging.INFO, format="%(message)s")
start.phase("before anything began")
start.begin("it")
time.sleep(0.05)
start.phase("first")
start.phase("too short to be named")
time.sleep(0.05)
start.phase("second")
time.sleep(0.05)
start.phase("first")
start.end()
start.phase("after the end")
start.end()
"""


def started(code: str, began_s: float | None) -> str:
    environment = {name: value for name, value in os.environ.items() if name != start.BEGAN_VARIABLE}
    if began_s is not None:
        environment[start.BEGAN_VARIABLE] = str(began_s)
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    (line,) = result.stderr.splitlines()
    return line


def test_each_phase_is_named_once_with_all_its_time() -> None:
    text, _, phases = started(CODE, None).partition(" s: ")
    assert text.startswith("start of it, 0.00 to ")
    took_s = {name: float(seconds) for name, _, seconds in (each.rpartition(" ") for each in phases.split(", "))}
    assert list(took_s) == ["first", "second"]
    assert took_s["first"] >= 0.1 and took_s["second"] >= 0.05
    assert float(text.split()[-1]) >= sum(took_s.values()) - 0.02  # it counts from when the process was made


def test_it_counts_from_the_start_of_the_server() -> None:
    text = started(CODE, start._process_began_s() - 1000)
    assert 1000 <= float(text.split()[3]) < float(text.split()[5])


def test_outside_of_a_start_nothing_is_noted(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        start.phase("of a test")
        start.end()
    assert not caplog.records
