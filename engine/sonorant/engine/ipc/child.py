"""Starting one of our functions in a fresh interpreter, with the file descriptors it is given and no others.

`multiprocessing` would do, but its spawn imports the caller's main module again in every child (for a worker that means
the whole gRPC stack) and keeps a resource tracker process beside them. Workers are forked, which is quicker; see
sonorant.engine.ipc.fork_server.
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

from sonorant.engine.errors import CheckpointError, EngineError
from sonorant.engine.ipc.inherited import Inheritable, inherited

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

# What the new interpreter is told to do; needs the standard library alone until it knows the parent's sys.path.
# Ctrl-C, and a SIGTERM from systemd, reach the whole group; the parent decides when its children stop, and none
# outlives it.
BOOTSTRAP = (
    "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "import pickle, sys; file = open(int(sys.argv[2]), 'rb'); sys.path[:] = pickle.load(file); "
    "from sonorant.engine.ipc.child import main; main(sys.argv[1], file)"
)


class Adopted:
    """A child that this process did not start itself: of `subprocess.Popen` the part that is needed."""

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
        if self.poll() is None:  # so the pid is not somebody else's by now
            os.kill(self.pid, signal.SIGKILL)

    def _reap(self, options: int) -> int | None:
        if self._code is None:
            try:
                pid, status = os.waitpid(self.pid, options)
            except ChildProcessError:  # somebody else in this process has waited for all children
                pid, status = self.pid, 0
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code


class Child:
    """A running child. `ready` receives what its target sends on the connection that it gets as its last argument."""

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
        """In a fresh interpreter. Raises OSError if it cannot be started; nothing is left then."""
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
        """Readable once the child is dead."""
        return self._pidfd

    async def loaded(self) -> Any:
        """What the child says once it is ready for work: ("ready", value).

        If it cannot load, raises CheckpointError or EngineError with the reason: ("unusable" or "failed", message).
        """
        await readable(self.ready.fileno())
        os.set_blocking(self.ready.fileno(), True)  # uvloop unblocks what it polls, and a message may come in pieces
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
        """The exit code, as soon as the child is dead; minus the signal's number if one killed it."""
        return self._process.wait()

    def close(self) -> None:
        """Kill the child if it still runs, and release what belongs to it."""
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
    """For `main`, behind what is in the file already."""
    pickle.dump((logging.getLogger().getEffectiveLevel(), target, args, ready.fileno()), file)
    file.seek(0)  # the child shares this position


def main(name: str, file: IO[bytes]) -> None:
    """Of every child, fresh or forked. What `target` raises ends it with a traceback and code 1."""
    with open("/proc/self/comm", "w") as comm:
        comm.write(name)  # for ps and top
    with file:
        level, target, args, ready_fd = pickle.load(file)
    logging.basicConfig(level=level, format=LOG_FORMAT, force=True)
    target(*args, Connection(inherited(ready_fd), readable=False))
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)  # the kernel is quicker at freeing everything than an interpreter with torch in it, and others wait
