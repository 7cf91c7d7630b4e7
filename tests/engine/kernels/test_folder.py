"""Who waits while kernels are compiled into the folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sonorant.engine.kernels.folder import being_filled, cache_folder, wait_until_filled

WAIT = "from sonorant.engine.kernels.folder import wait_until_filled; print('up', flush=True); wait_until_filled()"


def test_others_wait_until_it_is_filled(tmp_path: Path) -> None:
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "new")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", environment["TRITON_CACHE_DIR"])
        with being_filled(), being_filled():
            waiting = subprocess.Popen([sys.executable, "-c", WAIT], env=environment, stdout=subprocess.PIPE)
            assert waiting.stdout is not None and waiting.stdout.readline()
            with pytest.raises(subprocess.TimeoutExpired):
                waiting.wait(0.2)
        assert waiting.wait(30) == 0
        wait_until_filled()
        with being_filled():
            pass
    waiting.stdout.close()


def test_nobody_waits_where_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "file" / "folder"))
    with being_filled():
        wait_until_filled()
    monkeypatch.delenv("TRITON_CACHE_DIR")
    monkeypatch.setenv("TRITON_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".triton" / "cache"
