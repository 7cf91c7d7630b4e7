"""Child processes: start one of our functions in a fresh interpreter, with chosen file descriptors and no others.

`multiprocessing` could do this, but its spawn imports the caller's main module again in every child (for a worker that
means the whole gRPC stack) and keeps a resource tracker process running. Workers are forked instead, which is quicker;
see sonorant.engine.ipc.fork_server.
"""

import asyncio
import logging
import os
import pickle
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection, Pipe
from typing import IO, Any

from sonorant import logs
from sonorant.engine.errors import CheckpointError, EngineError
from sonorant.engine.ipc.handed import Descriptor, packed, unpacked
from sonorant.logs import start

log = logging.getLogger(__name__)

# The program of the new interpreter. It uses only the standard library until it has the parent's sys.path.
# It ignores three signals: Ctrl-C, systemd and a terminal that closes send them to all processes of the server, but the
# parent decides when its children stop, and none outlives it.
BOOTSTRAP = (
    "import signal; [signal.signal(n, signal.SIG_IGN) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]; "
    "import pickle, sys; file = open(int(sys.argv[2]), 'rb'); sys.path[:] = pickle.load(file); "
    "from sonorant.engine.ipc.child import main; main(sys.argv[1], file)"
)


class Child:
    """A running child. Its target gets a connection as its last argument; what it sends there arrives at `ready`."""

    def __init__(self, name: str, pid: int, ready: Connection) -> None:
        self.name = name
        self.pid = pid
        self.ready = ready
        self.pidfd = os.pidfd_open(pid)  # becomes readable when the child dies
        self._code: int | None = None  # once it is reaped

    @classmethod
    def spawn(cls, name: str, target: Callable[..., None], args: tuple[Any, ...]) -> "Child":
        """Start `target` in a fresh interpreter, which gets what `args` hold and no other descriptors. Raises OSError
        if that fails, and leaves nothing behind.
        """
        ready, child_end = Pipe(duplex=False)
        with ExitStack() as undo:
            undo.callback(ready.close)
            with child_end, os.fdopen(os.memfd_create("sonorant-child"), "w+b") as file:
                pickle.dump(sys.path, file)
                fds = write_job(file, target, args, child_end)
                command = [sys.executable, "-c", BOOTSTRAP, f"sonorant-{name}", str(file.fileno())]
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, pass_fds=[file.fileno(), *fds], cwd=_directory()
                )
            undo.callback(process.wait)
            undo.callback(process.kill)
            child = cls(name, process.pid, ready)
            process.returncode = 0  # it is the child who reaps it
            undo.pop_all()
            return child

    @property
    def is_dead(self) -> bool:
        if self._code is None:
            poll = select.poll()
            poll.register(self.pidfd, select.POLLIN)
            return bool(poll.poll(0))
        return True

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
            why = ""
            if (code := self.wait()) == -signal.SIGKILL:
                why = "; Linux kills processes when memory runs out: `sonorant-server doctor` says how much is needed"
            raise EngineError(f"the {self.name} worker exited with code {code} while loading{why}") from None
        if kind == "unusable":
            raise CheckpointError(value)
        if kind == "failed":
            raise EngineError(value)
        return value

    async def dead(self) -> None:
        await readable(self.pidfd)

    def kill(self) -> None:
        if self._code is None:
            with suppress(ProcessLookupError):  # other code in this process has reaped it
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def wait(self) -> int:
        """Block until the child is dead and return its exit code; minus the signal's number if a signal killed it."""
        if self._code is None:
            try:
                _, status = os.waitpid(self.pid, 0)
            except ChildProcessError:  # other code in this process has already reaped it
                status = 0
            self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def close(self) -> None:
        """Kill the child if it still runs, and close our file descriptors of it."""
        self.kill()
        self.wait()
        self.ready.close()
        os.close(self.pidfd)


def _directory() -> str | None:
    """Where a child starts: where we are, or at the root if that folder was deleted. PyTorch does not load there."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return "/"
    return None


async def readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    event = asyncio.Event()
    loop.add_reader(fd, event.set)
    try:
        await event.wait()
    finally:
        loop.remove_reader(fd)


def write_job(file: IO[bytes], target: Callable[..., None], args: tuple[Any, ...], ready: Connection) -> list[int]:
    """Append the child's job for `main` to the file, and rewind it. Return the descriptors it needs, `ready` first."""
    job = packed((Descriptor(ready.fileno()), logging.getLogger().getEffectiveLevel(), target, args))
    pickle.dump(job, file)
    file.seek(0)  # the child shares this position
    return job[1]


def main(name: str, file: IO[bytes], fds: Sequence[int] | None = None) -> None:
    """Entry of every child, fresh or forked: run the job in `file`. An exception is logged, and ends it with code 1.

    `fds`: the descriptors of the job, unless this process has them under their old numbers.
    """
    with open("/proc/self/comm", "w") as comm:
        comm.write(name)  # for ps and top
    with file:
        job, numbers = pickle.load(file)
    ready_fd, level, target, args = unpacked(job, numbers if fds is None else fds)
    logs.set_up(level=level)
    start.begin(name)
    start.phase("imports")
    try:
        target(*args, Connection(ready_fd, readable=False))
    except Exception:
        log.exception("the %s process has failed", name)
        sys.exit(1)
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)  # others wait for our end, and the kernel frees everything faster than an interpreter with torch does
