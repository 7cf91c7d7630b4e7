"""Covers: what happens to callers, and what is told, when the disk of a server and a gateway becomes full."""

from pathlib import Path

import pytest

from tests.own_mounts import in_namespace


@pytest.mark.rare
@pytest.mark.slow
def test_on_a_full_disk_everybody_speaks_and_only_what_must_be_kept_is_refused(tmp_path: Path) -> None:
    script = 'mount -t tmpfs -o size=24m none "$2"; exec "$1" -m tests.e2e.full_disk "$2"'
    (disk := tmp_path / "disk").mkdir()
    said = in_namespace(script, str(disk), timeout_s=280.0)
    assert said.returncode == 0 and said.stdout.endswith("survived\n"), said.stdout + said.stderr
