"""The benchmark of a ring hop, between two real processes."""

import subprocess
import sys

import pytest

from sonorant.engine.ipc.bench import Batch, frames, measure, pcm
from sonorant.engine.ipc.messages import encode
from sonorant.engine.ipc.ring import record_bytes


@pytest.mark.parametrize("batch", [frames(3), pcm(2)], ids=["codec frames", "PCM"])
def test_every_record_is_timed(batch: Batch) -> None:
    hop = measure(batch, num_records=100)
    assert hop.num_bytes == record_bytes(sum(len(part) for part in encode(batch)))
    assert 0 < hop.p50_us <= hop.p99_us < 1e6
    assert hop.records_per_s > 100


def test_it_runs_as_a_command() -> None:
    command = [sys.executable, "-m", "sonorant.engine.ipc.bench", "--rows", "1,2", "--records", "20"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line[:18].split() for line in lines[1:]] == [
        ["codec", "frames", "1"],
        ["codec", "frames", "2"],
        ["PCM", "1"],
        ["PCM", "2"],
    ]
