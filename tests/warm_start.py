"""Starts servers whose fork server exists already.

More than half of the processor time of a server's start goes into its fork server's `import torch`, and the tests start
dozens of servers. So a process that this one's fork server has forked forks once more, and becomes the server by exec:

    tests --fork--> process with torch --exec--> owner, a fresh interpreter
                      | fork
                      +-> fork server, a child of the owner, as one that it starts itself

The owner is only told of it before it begins. Tests of starts, the demo and the commands start servers without this.
"""

import asyncio
import atexit
import functools
import os
import select
import signal
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

from sonorant.engine.ipc.child import Child
from sonorant.engine.ipc.fork_server import WORKERS, serve
from sonorant.engine.ipc.handed import SocketEnd

TAKE = "from tests.warm_start import take; take({fd}, {pid}); "
TIMEOUT_S = 300.0  # on a busy machine the import of torch takes minutes


class Started:
    """With the part of `subprocess.Popen`'s interface that tests need."""

    def __init__(self, child: Child, stdout: socket.socket) -> None:
        self._child = child
        self.pid = child.pid
        with closing(child.ready), stdout:
            self.stdout = stdout.makefile()

    def poll(self) -> int | None:
        return self._child.wait() if self._child.is_dead else None

    def kill(self) -> None:
        self._child.kill()

    def send_signal(self, number: int) -> None:
        if not self._child.is_dead:
            os.kill(self.pid, number)

    def wait(self, timeout_s: float | None = None) -> int:
        ended = select.poll()  # tests have more files open than `select.select` can watch
        ended.register(self._child.pidfd, select.POLLIN)
        if not ended.poll(None if timeout_s is None else timeout_s * 1000):
            raise TimeoutError(f"process {self.pid} has not ended within {timeout_s} s")
        return self._child.wait()

    def __del__(self) -> None:
        os.close(self._child.pidfd)


def start(log: Path, python: str, code: str, arguments: Sequence[str]) -> Started:
    """Run `python -c code arguments` in a session of its own, with its stderr in a file."""
    hold()
    ours, theirs = socket.socketpair()
    with theirs, ThreadPoolExecutor(1) as thread:  # the caller's thread may be running an event loop
        fork = WORKERS.fork("server", become, (log, python, code, arguments, SocketEnd(theirs)), {}, TIMEOUT_S)
        return Started(thread.submit(asyncio.run, fork).result(), ours)


@functools.cache
def hold() -> None:
    """Keep this process's fork server to its end."""
    WORKERS.hold()
    atexit.register(WORKERS.release)


def become(log: Path, python: str, code: str, arguments: Sequence[str], stdout: SocketEnd, ready: Connection) -> None:
    """Leave a fork server behind as a child, and become the server."""
    os.setsid()
    with stdout.socket, log.open("wb") as stderr:
        os.dup2(stdout.socket.fileno(), 1)
        os.dup2(stderr.fileno(), 2)
    requests, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if not (pid := os.fork()):
        requests.close()
        Path("/proc/self/comm").write_text("sonorant-forker")
        serve((), SocketEnd(other), ready)
        os._exit(0)
    requests.set_inheritable(True)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # which workers ignore
        signal.signal(number, signal.SIG_DFL)
    os.execv(python, [python, "-c", TAKE.format(fd=requests.fileno(), pid=pid) + code, *arguments])


def take(fd: int, pid: int) -> None:
    """In the owner: the fork server is this child, at the other end of this socket."""
    ready, _ = Pipe(duplex=False)
    WORKERS._requests = socket.socket(fileno=fd)
    WORKERS._requests.set_inheritable(False)
    WORKERS._requests.setblocking(False)
    WORKERS._process = Child("forker", pid, ready)
