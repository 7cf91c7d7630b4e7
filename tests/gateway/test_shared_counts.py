"""Covers: the room that gateway processes take for the numbers they count together."""

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sonorant.gateway.shared_counts import KINDS, ROOM_BYTES, SHARED_DIR_VARIABLE, shared_folder, take_room

COUNT = """
from sonorant.gateway.shared_counts import take_room
take_room()
from sonorant.gateway.metrics import GatewayMetrics
metrics = GatewayMetrics()
for status in range(100, 600):
    metrics.refusals.labels("speech", str(status), "some_code").inc()
with metrics.speaking("speech") as spoken:
    spoken.audio(1000)
print(metrics.exposition().decode())
"""


def test_all_files_have_their_room_before_anything_is_counted(tmp_path: Path) -> None:
    environment = {**os.environ, SHARED_DIR_VARIABLE: str(tmp_path)}
    said = subprocess.run([sys.executable, "-c", COUNT], env=environment, capture_output=True, text=True, check=True)
    assert 'gateway_refusals_total{code="some_code",door="speech",status="599"} 1.0' in said.stdout
    files = list(tmp_path.iterdir())
    assert {file.name.rpartition("_")[0] for file in files} == set(KINDS), "a new kind of metric needs room, too"
    for file in files:
        assert file.stat().st_size == ROOM_BYTES, "it never had to grow"
        assert file.stat().st_blocks * 512 >= ROOM_BYTES


def test_a_process_without_room_counts_alone_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(SHARED_DIR_VARIABLE, str(tmp_path))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM_BYTES // 2, before[1]))
    try:
        take_room()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert SHARED_DIR_VARIABLE not in os.environ
    assert not list(tmp_path.iterdir())
    assert f"{tmp_path}: File too large: so GET /metrics tells of one process at a time" in caplog.text


def test_the_folder_of_a_gateway_that_was_killed_is_removed_by_the_next_one_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (left := tmp_path / "sonorant-counts-left").mkdir()
    (left / "counter_1.db").touch()
    (elsewhere := tmp_path / "elsewhere").mkdir()
    (link := tmp_path / "sonorant-counts-link").symlink_to(elsewhere)
    with shared_folder() as first, shared_folder() as second:
        assert first and second
        assert set(tmp_path.iterdir()) == {Path(first), Path(second), elsewhere, link}
    assert set(tmp_path.iterdir()) == {elsewhere, link}
