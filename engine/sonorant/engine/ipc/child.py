"""Child processes: start one of our functions in a fresh interpreter, with chosen file descriptors and no others.

`multiprocessing` could do this, but its spawn imports the caller's main module again in every child (for a worker that
means the whole gRPC stack) and keeps a resource tracker process running. Workers are forked instead, which is quicker;
see sonorant.engine.ipc.fork_server.
"""

import asyncio
import logging
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from multiprocessing.connection import Connection, Pipe
from typing import IO, Any

from sonorant import logs
from sonorant.engine.errors import CheckpointError, EngineError
from sonorant.engine.ipc.inherited import Inheritable, inherited
from sonorant.logs import start

log = logging.getLogger(__name__)

# The program of the new interpreter. It uses only the standard library until it has the parent's sys.path.
# It ignores SIGINT and SIGTERM: Ctrl-C and systemd send them to all processes of the server, but the parent decides
# when its children stop, and none outlives it.
BOOTSTRAP = (
    "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "import pickle, sys; file = open(int(sys.argv[2]), 'rb'); sys.path[:] = pickle.load(file); "
    "from sonorant.engine.ipc.child import main; main(sys.argv[1], file)"
)


class Adopted:
    """A child that this process did not start itself, with the part of `subprocess.Popen`'s interface that we need."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        return self._reap(os.WNOHANG)

    def wait(self) -> int:
        code = self._reap(0)
        assert code is not None
        return code

    def kill(self) -> None:
        if self.poll() is None:  # not reaped yet, so the pid cannot belong to another process
            os.kill(self.pid, signal.SIGKILL)

    def _reap(self, options: int) -> int | None:
        if self._code is None:
            try:
                pid, status = os.waitpid(self.pid, options)
            except ChildProcessError:  # other code in this process has already reaped it
                pid, status = self.pid, 0
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code


class Child:
    """A running child. Its target gets a connection as its last argument; what it sends there arrives at `ready`."""

    def __init__(self, name: str, process: "subprocess.Popen[bytes] | Adopted", ready: Connection) -> None:
        self.name = name
        self.ready = ready
        self._process = process
        self._pidfd = os.pidfd_open(process.pid)

    @classmethod
    def spawn(
        cls,
        name: str,
        target: Callable[..., None],
        args: tuple[Any, ...],
        inherited: Iterable[Inheritable] = (),
    ) -> "Child":
        """Start `target` in a fresh interpreter. Raises OSError if that fails, and leaves nothing behind."""
        ready, child_end = Pipe(duplex=False)
        with ExitStack() as undo:
            undo.callback(ready.close)
            with child_end, os.fdopen(os.memfd_create("sonorant-child"), "w+b") as file:
                pickle.dump(sys.path, file)
                write_job(file, target, args, child_end)
                command = [sys.executable, "-c", BOOTSTRAP, f"sonorant-{name}", str(file.fileno())]
                fds = [file.fileno(), child_end.fileno(), *(fd for each in inherited for fd in each.fds())]
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=fds)
            undo.callback(process.wait)
            undo.callback(process.kill)
            child = cls(name, process, ready)
            undo.pop_all()
            return child

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_dead(self) -> bool:
        return self._process.poll() is not None

    def fileno(self) -> int:
        """Return a file descriptor that becomes readable when the child dies."""
        return self._pidfd

    async def loaded(self) -> Any:
        """Wait until the child is ready for work and return the value it sends: ("ready", value).

        Raises CheckpointError or EngineError with its reason if it cannot load: ("unusable" or "failed", message).
        """
        await readable(self.ready.fileno())
        # uvloop makes what it polls non-blocking, but a message may arrive in pieces
        os.set_blocking(self.ready.fileno(), True)
        try:
            kind, value = self.ready.recv()
        except EOFError:
            await self.dead()
            raise EngineError(f"the {self.name} worker exited with code {self.wait()} while loading") from None
        if kind == "unusable":
            raise CheckpointError(value)
        if kind == "failed":
            raise EngineError(value)
        return value

    async def dead(self) -> None:
        await readable(self._pidfd)

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> int:
        """Block until the child is dead and return its exit code; minus the signal's number if a signal killed it."""
        return self._process.wait()

    def close(self) -> None:
        """Kill the child if it still runs, and close our file descriptors of it."""
        self.kill()
        self.wait()
        self.ready.close()
        os.close(self._pidfd)


async def readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    event = asyncio.Event()
    loop.add_reader(fd, event.set)
    try:
        await event.wait()
    finally:
        loop.remove_reader(fd)


def write_job(file: IO[bytes], target: Callable[..., None], args: tuple[Any, ...], ready: Connection) -> None:
    """Append the child's job for `main` to the file, and rewind it."""
    pickle.dump((logging.getLogger().getEffectiveLevel(), target, args, ready.fileno()), file)
    file.seek(0)  # the child shares this position


def main(name: str, file: IO[bytes]) -> None:
    """Entry of every child, fresh or forked: run the job in `file`. An exception is logged, and ends it with code 1."""
    with open("/proc/self/comm", "w") as comm:
        comm.write(name)  # for ps and top
    with file:
        level, target, args, ready_fd = pickle.load(file)
    logs.set_up(level=level)
    start.begin(name)
    start.phase("imports")
    try:
        target(*args, Connection(inherited(ready_fd), readable=False))
    except Exception:
        log.exception("the %s process has failed", name)
        sys.exit(1)
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)  # others wait for our end, and the kernel frees everything faster than an interpreter with torch does
