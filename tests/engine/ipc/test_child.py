"""A child gets what it was given and nothing else, and none outlives its parent."""

import os
import select
import signal
import time
from contextlib import closing
from pathlib import Path

import pytest

from sonorant.engine.errors import EngineError
from sonorant.engine.ipc.child import Child
from sonorant.engine.ipc.handed import packed
from sonorant.engine.ipc.heartbeat import Heartbeat, Step
from sonorant.engine.types import PassCounts
from tests.child_pids import child_pids
from tests.engine.ipc import children
from tests.open_files import open_files


def wait_for_death(fd: int, timeout_s: float) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def ignores(pid: int, number: signal.Signals) -> bool:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return bool(int(status["SigIgn"], 16) & 1 << number - 1)


def test_a_child_holds_its_own_descriptors_only_and_passes_none_on() -> None:
    with (
        closing(Heartbeat()) as other,
        closing(Heartbeat()) as heartbeat,
        closing(Child.spawn("fds", children.tell_fds, (heartbeat,))) as child,
    ):
        fds = dict(child.ready.recv())
        assert packed(other)[1][0] not in fds
    assert len(fds) == 6  # the standard three, the connection, the heartbeat and its mapping's duplicate
    assert [fd for fd, inheritable in fds.items() if inheritable] == [0, 1, 2]


def test_a_child_starts_where_we_are_and_at_the_root_if_that_was_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "release"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for expected in (str(folder), "/"):
        with closing(Child.spawn("where", children.tell_directory, ())) as child:
            assert child.ready.recv() == expected
        if folder.exists():
            folder.rmdir()


def test_no_child_outlives_a_killed_parent() -> None:
    with closing(Child.spawn("parent", children.parent_of_echo, ())) as parent:
        grandchild = os.pidfd_open(parent.ready.recv())
        parent.kill()
        assert wait_for_death(grandchild, timeout_s=60)
        os.close(grandchild)


def test_the_sentinel_the_exit_code_and_the_connection_tell_of_a_death(capfd: pytest.CaptureFixture[str]) -> None:
    with closing(Child.spawn("failing", children.fail, ())) as child:
        assert wait_for_death(child.pidfd, timeout_s=60)
        assert child.wait() == 1
        with pytest.raises(EOFError):
            child.ready.recv()
    assert "ValueError: out of luck" in capfd.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_whole_group_is_the_parents_business(number: signal.Signals) -> None:
    with (
        closing(Heartbeat()) as heartbeat,
        closing(Child.spawn("hung", children.hang, (heartbeat,))) as child,
    ):
        child.ready.recv()
        os.kill(child.pid, number)
        assert ignores(child.pid, number)
        child.kill()
        assert child.wait() == -signal.SIGKILL


def test_a_heartbeat_is_seen_across_processes_and_a_stopped_child_is_killed() -> None:
    with closing(Heartbeat()) as heartbeat:
        assert heartbeat.busy_since_ns == 0
        with closing(Child.spawn("hung", children.hang, (heartbeat,))) as child:
            child.ready.recv()
            assert 0 < heartbeat.busy_since_ns < time.monotonic_ns()
            os.kill(child.pid, signal.SIGSTOP)  # close() kills it all the same
        heartbeat.idle(Step(0), PassCounts())
        assert heartbeat.busy_since_ns == 0


def test_starting_and_closing_leaves_nothing() -> None:
    before, others = open_files(), child_pids()
    for _ in range(3):
        children.EchoPair(ring_bytes=4096).close()
    assert not open_files() - before
    assert child_pids() <= others


async def test_a_child_that_is_killed_while_it_loads_is_told_of() -> None:
    with closing(Child.spawn("talker", children.load_for_ever, ())) as child:
        child.kill()
        with pytest.raises(EngineError, match="talker worker exited with code -9 while loading; Linux kills"):
            await child.loaded()
