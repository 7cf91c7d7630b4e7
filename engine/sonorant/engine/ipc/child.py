"""Starting one of our functions in a fresh interpreter, with the file descriptors it is given and no others.

`multiprocessing` would do, but its spawn imports the caller's main module again in every child (for a worker that means
the whole gRPC stack) and keeps a resource tracker process beside them. Rings, doorbells and heartbeats pickle as the
numbers of their descriptors, which mean the same in the child that inherits them, and nothing anywhere else.
"""

import asyncio
import logging
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from multiprocessing.connection import Connection, Pipe
from typing import IO, Any, Protocol

from sonorant.engine.errors import CheckpointError, EngineError

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

# What the new interpreter is told to do; needs the standard library alone until it knows the parent's sys.path.
# Ctrl-C, and a SIGTERM from systemd, reach the whole group; the parent decides when its children stop, and none
# outlives it.
BOOTSTRAP = (
    "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "import pickle, sys; file = open(int(sys.argv[2]), 'rb'); sys.path[:] = pickle.load(file); "
    "from sonorant.engine.ipc.child import main; main(sys.argv[1], file)"
)


class Inheritable(Protocol):
    def fds(self) -> tuple[int, ...]: ...


class Child:
    """A running child. `ready` receives what `target` sends on the connection that it gets as its last argument."""

    def __init__(
        self,
        name: str,
        target: Callable[..., None],
        args: tuple[Any, ...],
        inherited: Iterable[Inheritable] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`environment` is what it has beside ours. Raises OSError if it cannot be started; nothing is left then."""
        self.name = name
        self.ready, child_end = Pipe(duplex=False)
        with ExitStack() as undo:
            undo.callback(self.ready.close)
            with child_end, os.fdopen(os.memfd_create("sonorant-child"), "w+b") as file:
                pickle.dump(sys.path, file)
                pickle.dump((logging.getLogger().getEffectiveLevel(), target, args, child_end.fileno()), file)
                file.seek(0)  # the child shares this position
                command = [sys.executable, "-c", BOOTSTRAP, f"sonorant-{name}", str(file.fileno())]
                fds = [file.fileno(), child_end.fileno(), *(fd for each in inherited for fd in each.fds())]
                env = {**os.environ, **(environment or {})}
                self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=fds, env=env)
            undo.callback(self._process.wait)
            undo.callback(self._process.kill)
            self._pidfd = os.pidfd_open(self._process.pid)
            undo.pop_all()

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


def main(name: str, file: IO[bytes]) -> None:
    with open("/proc/self/comm", "w") as comm:
        comm.write(name)  # for ps and top
    with file:
        level, target, args, ready_fd = pickle.load(file)
    logging.basicConfig(level=level, format=LOG_FORMAT)
    os.set_inheritable(ready_fd, False)
    target(*args, Connection(ready_fd, readable=False))
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)  # the kernel is quicker at freeing everything than an interpreter with torch in it, and others wait
