"""A forked worker is a child like any other, with what it was given and nothing else; the fork server may die."""

import asyncio
import ctypes
import os
import resource
import select
import signal
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sonorant.engine.ipc.child import Child
from sonorant.engine.ipc.fork_server import ForkServer
from sonorant.engine.ipc.handed import SocketEnd
from sonorant.engine.ipc.heartbeat import Heartbeat
from sonorant.engine.ipc.ring import Doorbell
from tests.child_pids import child_pids
from tests.engine.ipc import children
from tests.open_files import open_files

TIMEOUT_S = 60.0


@pytest.fixture
def server() -> Iterator[ForkServer]:
    """A fork server. At the end the test fails if files or processes of it or its workers are left."""
    files, others = open_files(), child_pids()
    server = ForkServer("json", "no.such.module")
    server.hold()
    yield server
    server.release()
    assert not open_files() - files
    assert child_pids() <= others
    assert not _takes_orphans()


async def fork(server: ForkServer, name: str, *ends: object, environment: dict[str, str] | None = None) -> Child:
    target = getattr(children, name)
    return await server.fork("test", target, ends, environment or {}, TIMEOUT_S)


async def test_it_may_import_before_the_first_worker_is_wanted(server: ForkServer) -> None:
    with server.ahead():
        ahead = server.pid
        assert ahead is not None
        with closing(await fork(server, "hang")):
            assert server.pid == ahead


async def test_a_worker_holds_its_own_descriptors_only_whatever_their_numbers_were(server: ForkServer) -> None:
    with (
        closing(Heartbeat()) as other,
        closing(Heartbeat()) as heartbeat,
        closing(await fork(server, "hang", other)),
        closing(await fork(server, "tell_fds", heartbeat)) as child,
    ):
        fds = dict(child.ready.recv())
        assert len(fds) == 6  # as of a fresh child: the standard three, the connection, the heartbeat twice
        assert [fd for fd, inheritable in fds.items() if inheritable] == [0, 1, 2]


async def test_descriptors_are_the_workers_own_and_close_with_it(server: ForkServer) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            child = await fork(server, "hold", SocketEnd(theirs))
        with closing(child), closing(Heartbeat()) as heartbeat, closing(await fork(server, "hang", heartbeat)):
            assert child.ready.recv() == "holding"
            child.kill()
            await child.dead()
            assert ours.recv(1) == b""  # neither the fork server nor the other worker has it


async def test_a_worker_is_a_child_of_ours_and_its_death_is_told_with_the_code(
    server: ForkServer, capfd: pytest.CaptureFixture[str]
) -> None:
    with closing(Heartbeat()) as heartbeat, closing(await fork(server, "hang", heartbeat)) as child:
        assert child.ready.recv() == "busy"
        assert child.pid in child_pids()
        assert not child.is_dead
        child.kill()
        await child.dead()
        assert child.is_dead and child.wait() == -signal.SIGKILL
    with closing(await fork(server, "fail")) as child:
        await child.dead()
        assert child.wait() == 1
        with pytest.raises(EOFError):
            child.ready.recv()
    with closing(await fork(server, "leave_with_seven")) as child:
        await child.dead()
        assert child.wait() == 7
    assert "ValueError: out of luck" in capfd.readouterr().err


async def test_a_worker_has_our_variables_and_its_own(server: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(await fork(server, "tell_variables", environment={"OF_ONE": "its own"})) as child:
        assert child.ready.recv() == ("its own", None)
    monkeypatch.setenv("OF_ALL", "set later")
    with closing(await fork(server, "tell_variables")) as child:
        assert child.ready.recv() == (None, "set later")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_to_the_whole_group_is_the_parents_business(server: ForkServer, number: signal.Signals) -> None:
    with closing(Heartbeat()) as heartbeat, closing(await fork(server, "hang", heartbeat)) as child:
        child.ready.recv()
        assert server.pid is not None
        os.kill(server.pid, number)
        os.kill(child.pid, number)
        assert not _dies(child.pidfd, 0.05)
        with closing(await fork(server, "leave_with_seven")) as other:
            await other.dead()


async def test_it_rests_until_the_next_worker_is_wanted_and_never_while_one_is_started(server: ForkServer) -> None:
    with closing(await fork(server, "hang")) as child:
        first = server.pid
        server.rest()
        assert server.pid is None and not child.is_dead
        start = asyncio.create_task(fork(server, "hang"))
        await asyncio.sleep(0)
        second = server.pid
        server.rest()
        with closing(await start):
            assert server.pid == second not in (None, first)


async def test_workers_outlive_the_fork_server_and_the_next_one_gets_another(server: ForkServer) -> None:
    with closing(Heartbeat()) as heartbeat, closing(await fork(server, "hang", heartbeat)) as child:
        assert child.ready.recv() == "busy"
        first = server.pid
        assert first is not None
        with closing(_Pidfd(first)) as death:
            os.kill(first, signal.SIGKILL)
            assert _dies(death.fd, TIMEOUT_S)
        assert server.pid is None and not child.is_dead
        with closing(await fork(server, "leave_with_seven")) as other:
            await other.dead()
            assert other.wait() == 7
        assert server.pid not in (None, first)
        child.kill()
        await child.dead()
        assert child.wait() == -signal.SIGKILL


async def test_a_fork_server_that_dies_while_a_worker_is_wanted_is_told_and_another_one_serves(
    server: ForkServer,
) -> None:
    with closing(await fork(server, "leave_with_seven")) as child:
        await child.dead()
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)  # so that it cannot answer first
    wanted = asyncio.create_task(fork(server, "leave_with_seven"))
    await asyncio.sleep(0)
    os.kill(server.pid, signal.SIGKILL)
    with pytest.raises(OSError, match="the fork server died"):
        await wanted
    with closing(await fork(server, "leave_with_seven")) as child:
        await child.dead()


async def test_a_fork_server_that_hangs_is_killed(server: ForkServer) -> None:
    with closing(await fork(server, "leave_with_seven")) as child:
        await child.dead()
    hung = server.pid
    assert hung is not None
    os.kill(hung, signal.SIGSTOP)
    with pytest.raises(OSError, match="the fork server died"):
        await server.fork("test", children.leave_with_seven, (), {}, timeout_s=0.1)
    with closing(await fork(server, "leave_with_seven")) as child:
        await child.dead()
    assert server.pid != hung


@pytest.mark.parametrize("turns", [0, 1, 5])
async def test_a_start_that_is_cancelled_leaves_nothing(server: ForkServer, turns: int) -> None:
    with closing(await fork(server, "leave_with_seven")) as child:
        await child.dead()
    files, others = open_files(), child_pids()
    ours, theirs = Doorbell.pair()
    with closing(ours):
        with closing(theirs):
            wanted = asyncio.create_task(fork(server, "ring_for_ever", theirs))
            for _ in range(turns):
                await asyncio.sleep(0)
            wanted.cancel()
            with pytest.raises(asyncio.CancelledError):
                await wanted
        ours.clear()  # what it may have rung before it was killed
        ours.clear()
        assert ours.peer_gone
    assert not open_files() - files
    assert child_pids() <= others


@pytest.mark.slow
async def test_too_few_open_files_are_told_and_leave_nothing(server: ForkServer) -> None:
    limits, fds = resource.getrlimit(resource.RLIMIT_NOFILE), set(map(int, os.listdir("/proc/self/fd")))
    free = [fd for fd in range(1000) if fd not in fds]
    files = open_files()
    for num_left in range(9):  # each of them one step further on
        resource.setrlimit(resource.RLIMIT_NOFILE, (free[num_left], limits[1]))
        try:
            with pytest.raises(OSError, match="Too many open files"):
                await fork(server, "leave_with_seven")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert not open_files() - files, num_left
        assert server.pid is None


def test_neither_outlives_a_killed_parent() -> None:
    with closing(Child.spawn("parent", children.parent_of_forked, ())) as parent:
        pids = parent.ready.recv()
        with closing(_Pidfd(pids[0])) as worker, closing(_Pidfd(pids[1])) as server:
            parent.kill()
            assert _dies(worker.fd, TIMEOUT_S) and _dies(server.fd, TIMEOUT_S)


def test_it_does_not_import_on_for_a_killed_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    monkeypatch.setenv("IMPORT_BEGINS", str(begun))
    with (
        closing(Child.spawn("parent", children.parent_of_importing, ())) as parent,
        closing(_Pidfd(parent.ready.recv())) as server,
    ):
        begun.read_bytes()  # once it has been opened there
        parent.kill()
        assert _dies(server.fd, TIMEOUT_S)


class _Pidfd:
    def __init__(self, pid: int) -> None:
        self.fd = os.pidfd_open(pid)

    def close(self) -> None:
        os.close(self.fd)


def _dies(pidfd: int, within_s: float) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(within_s * 1000))


def _takes_orphans() -> bool:
    answer = ctypes.c_int()
    ctypes.CDLL(None).prctl(37, ctypes.byref(answer), 0, 0, 0)  # PR_GET_CHILD_SUBREAPER
    return bool(answer.value)
