"""The MPS daemon of a server: there while it is needed, gone however its owner ends. A script stands in for it."""

import asyncio
import logging
import os
import shutil
import signal
import subprocess
from contextlib import closing, suppress
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from sonorant.engine import BUILTIN_VOICE_DIR, EngineConfig, EngineError
from sonorant.engine.ipc.child import Child
from sonorant.engine.workers.mps import mps_answers, mps_daemon, mps_for, this_machine
from sonorant.engine.workers.mps_plan import PROGRAM, Machine
from tests.engine.mps_stand_in import install_mps

GPU = Machine(has_gpu=True, program=PROGRAM, has_daemon=False)
PAIR = EngineConfig(BUILTIN_VOICE_DIR)


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that gets the daemon's process id and directory."""
    return install_mps(tmp_path, monkeypatch)


def daemon(started: Path) -> tuple[int, Path]:
    pid, directory = started.read_text().split()
    return int(pid), Path(directory)


def began(started: Path) -> bool:
    return started.exists()


def left(started: Path) -> list[str]:
    """Return what is left of a daemon: its process and its files. Nothing if it has not begun."""
    return left_of(*daemon(started)) if began(started) else []


def left_of(pid: int, directory: Path) -> list[str]:
    status, files = Path(f"/proc/{pid}/status"), []
    with suppress(FileNotFoundError, ProcessLookupError):
        files.append(status.read_text())
    with suppress(FileNotFoundError):  # it may go while it is being read
        files += [str(path) for path in (directory, *directory.iterdir())]
    return files


async def test_it_is_there_inside_and_gone_after(started: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async with mps_daemon() as folder:
        pid, directory = daemon(started)
        assert folder == directory
        assert mps_answers(folder)
        assert (folder / "daemon.log").read_text() == "Waiting for clients\n"
    assert not left_of(pid, directory)
    assert capfd.readouterr() == ("", "")  # the server's own log has none of it


async def test_a_start_that_is_cancelled_leaves_nothing(started: Path) -> None:
    async def enter() -> None:
        async with mps_daemon():
            pass

    for delay_s in (0.0, 0.05, 0.2):
        task = asyncio.create_task(enter())
        await asyncio.sleep(delay_s)
        task.cancel()
        await asyncio.wait([task])
        assert not left(started)


async def test_an_end_that_is_cancelled_leaves_nothing(started: Path) -> None:
    leaves = asyncio.Event()

    async def enter() -> None:
        async with mps_daemon():
            leaves.set()

    task = asyncio.create_task(enter())
    await leaves.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert began(started) and not left(started)


async def test_what_goes_wrong_is_told_and_nothing_is_left(started: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPS_REFUSES", "no permission to set up shared memory")
    with pytest.raises(EngineError, match="status 1: no permission"):
        async with mps_daemon():
            pass
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(EngineError, match="comes with the NVIDIA driver"):
        async with mps_daemon():
            pass


@pytest.fixture
def refusing_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A libcuda whose clients cannot connect to the MPS server: CUDA_ERROR_MPS_CONNECTION_FAILED."""
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    (tmp_path / "cuda.c").write_text("int cuInit(unsigned flags) { return 805; }")
    command = ["cc", "-shared", "-fPIC", "-o", str(tmp_path / "libcuda.so.1"), str(tmp_path / "cuda.c")]
    subprocess.run(command, check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))


async def test_auto_goes_on_in_turns_where_a_daemon_cannot_be_had(
    started: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MPS_REFUSES", "no permission to set up shared memory")
    async with mps_for("auto", [PAIR], GPU) as folder:
        assert folder is None
    (line,) = caplog.messages
    assert "take turns" in line and "no permission" in line and "--mps false" in line
    with pytest.raises(EngineError, match="no permission"):
        async with mps_for("true", [PAIR], GPU):
            pass


async def test_a_daemon_that_serves_no_gpu_is_none(
    started: Path, refusing_driver: None, caplog: pytest.LogCaptureFixture
) -> None:
    async with mps_for("auto", [PAIR], GPU) as folder:
        assert folder is None
        assert not left(started)
    assert "CUDA error 805" in caplog.text


async def test_auto_starts_a_daemon_where_a_gpu_is_shared_and_says_nothing_where_none_is(
    started: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    apart = EngineConfig.of(BUILTIN_VOICE_DIR, talker_device="cuda:0", code2wav_device="cuda:1")
    async with mps_for("auto", [apart], GPU) as folder:
        assert folder is None
    assert not caplog.messages and not began(started)
    async with mps_for("auto", [apart, PAIR], GPU) as folder:
        assert folder == daemon(started)[1]
    assert not left(started)
    assert caplog.messages == [f"MPS daemon started in {folder}"]


async def test_the_machine_is_seen_as_it_is(started: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert this_machine().program == str(started.parent / PROGRAM)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert not this_machine().has_gpu
    async with mps_daemon() as folder:
        monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(folder))
        assert this_machine().has_daemon
    assert not this_machine().has_daemon


def own_a_daemon(ready: Connection) -> None:
    async def main() -> None:
        async with mps_daemon():
            ready.send("ready")
            await asyncio.sleep(60)

    asyncio.run(main())


@pytest.mark.parametrize("killed", ["owner", "daemon"])
async def test_it_goes_when_its_owner_is_killed(started: Path, killed: str, capfd: pytest.CaptureFixture[str]) -> None:
    with closing(Child.spawn("owner", own_a_daemon, ())) as owner:
        assert owner.ready.recv() == "ready"
        pid, directory = daemon(started)
        os.kill(owner.pid if killed == "owner" else pid, signal.SIGKILL)
        if killed == "daemon":
            while "ended with status -9" not in capfd.readouterr().err:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            assert directory.exists(), "the keeper stays, for its owner does"
            owner.kill()
        async with asyncio.timeout(60):
            while left_of(pid, directory):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
