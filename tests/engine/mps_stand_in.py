"""A script in place of the MPS control program, first in the PATH."""

import os
import shutil
from pathlib import Path

import pytest

from sonorant.engine.workers.mps_plan import PROGRAM


def install_mps(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the file in which a daemon says its process id and directory once it is started."""
    shutil.copy(Path(__file__).with_name("mps_control.sh"), folder / PROGRAM)
    (folder / PROGRAM).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("MPS_STARTED", str(folder / "started"))
    return folder / "started"
