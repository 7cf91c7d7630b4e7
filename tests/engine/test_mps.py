"""The MPS daemon of a server: there while it is needed, gone however its owner ends. A script stands in for it."""

import asyncio
import os
import shutil
import signal
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from engine import EngineError
from engine.ipc.child import Child
from engine.mps import PROGRAM, mps_answers, mps_daemon

SCRIPT = Path(__file__).parent / "mps_control.sh"


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that gets the daemon's process id and directory."""
    shutil.copy(SCRIPT, tmp_path / PROGRAM)
    (tmp_path / PROGRAM).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("MPS_STARTED", str(tmp_path / "started"))
    return tmp_path / "started"


def daemon(started: Path) -> tuple[int, Path]:
    pid, directory = started.read_text().split()
    return int(pid), Path(directory)


def never_began_or_is_gone(started: Path) -> bool:
    return not started.exists() or nothing_is_left(*daemon(started))


def nothing_is_left(pid: int, directory: Path) -> bool:
    return not Path(f"/proc/{pid}").exists() and not directory.exists()


async def test_it_is_there_inside_and_gone_after(started: Path) -> None:
    async with mps_daemon() as folder:
        pid, directory = daemon(started)
        assert folder == directory
        assert mps_answers(folder)
    assert nothing_is_left(pid, directory)


async def test_a_start_that_is_cancelled_leaves_nothing(started: Path) -> None:
    async def enter() -> None:
        async with mps_daemon():
            pass

    for delay_s in (0.0, 0.05, 0.2):
        task = asyncio.create_task(enter())
        await asyncio.sleep(delay_s)
        task.cancel()
        await asyncio.wait([task])
        assert never_began_or_is_gone(started)


async def test_what_goes_wrong_is_told_and_nothing_is_left(started: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPS_REFUSES", "no permission to set up shared memory")
    with pytest.raises(EngineError, match="status 1: no permission"):
        async with mps_daemon():
            pass
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(EngineError, match="comes with the NVIDIA driver"):
        async with mps_daemon():
            pass


def own_a_daemon(ready: Connection) -> None:
    async def main() -> None:
        async with mps_daemon():
            ready.send("ready")
            await asyncio.sleep(60)

    asyncio.run(main())


@pytest.mark.parametrize("killed", ["owner", "daemon"])
async def test_it_goes_when_its_owner_is_killed(started: Path, killed: str) -> None:
    with closing(Child("owner", own_a_daemon, ())) as owner:
        assert owner.ready.recv() == "ready"
        pid, directory = daemon(started)
        os.kill(owner.pid if killed == "owner" else pid, signal.SIGKILL)
        if killed == "daemon":
            await asyncio.sleep(0.2)  # the keeper stays, for its owner does
            assert directory.exists()
            owner.kill()
        async with asyncio.timeout(10):
            while not nothing_is_left(pid, directory):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
