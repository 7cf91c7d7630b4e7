"""The benchmark of one process against two, run as a command on a tiny checkpoint: real workers on the one side."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sonorant.engine.tools.bench import Spoken, summary
from sonorant.engine.types import StreamBudget
from tests.tiny_checkpoint import write_tiny_checkpoint


@pytest.mark.slow
def test_both_ways_are_timed(tmp_path: Path) -> None:
    checkpoint = write_tiny_checkpoint(tmp_path / "checkpoint")
    told = tmp_path / "told.json"
    command = [sys.executable, "-m", "sonorant.engine.tools.bench", "--model", str(checkpoint), "--json", str(told)]
    done = subprocess.run([*command, "--utterances", "3", "--frames", "5"], capture_output=True, text=True, check=True)
    ways = ["one process", "two processes", "difference"]
    assert [line[:13].strip() for line in done.stdout.splitlines()] == ["ms", *ways]
    rows = json.loads(told.read_text())["ms"]
    assert list(rows) == ways
    for row in (rows["one process"], rows["two processes"]):
        assert 0 < row["p50"] <= row["p95"] <= row["p100"] < 60_000
        assert row["step"] > 0 and row["codec"] > 0


def test_percentiles_are_by_nearest_rank_and_parts_add_up() -> None:
    parts_s = StreamBudget(0.0, *(n / 1000 for n in range(1, 8)))  # 28 ms
    found = summary([Spoken(n / 1000, 1, parts_s) for n in range(200, 100, -1)])
    assert {name: round(value) for name, value in found.items()} == {
        "p50": 150,
        "p95": 195,
        "p100": 200,
        "prompt": 122,
        "queue": 3,
        "step": 3,
        "to codec": 9,
        "codec": 6,
        "to caller": 7,
    }
