"""The benchmark of one process against two, run as a command on a tiny checkpoint: real workers on the one side."""

import json
import subprocess
import sys
from pathlib import Path

from engine.bench import summary
from tests.tiny_checkpoint import write_tiny_checkpoint


def test_both_ways_are_timed(tmp_path: Path) -> None:
    checkpoint = write_tiny_checkpoint(tmp_path / "checkpoint")
    told = tmp_path / "told.json"
    command = [sys.executable, "-m", "engine.bench", "--model", str(checkpoint), "--json", str(told)]
    done = subprocess.run([*command, "--utterances", "3", "--frames", "5"], capture_output=True, text=True, check=True)
    assert [line.split("  ")[0] for line in done.stdout.splitlines()[1:]] == [
        "one process",
        "two processes",
        "difference",
    ]
    result = json.loads(told.read_text())
    assert {way: len(times) for way, times in result["all_ms"].items()} == {"one process": 3, "two processes": 3}
    for row in result["ms"].values():
        assert 0 < row["p50"] <= row["p95"] <= row["p100"] < 60_000


def test_percentiles_are_by_nearest_rank() -> None:
    assert summary([float(n) for n in range(100, 0, -1)]) == {"p50": 50.0, "p95": 95.0, "p100": 100.0}
