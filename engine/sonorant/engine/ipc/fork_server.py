"""The fork server: a process that has imported what workers need (mostly torch, which is slow) and forks workers.

    this process  --socket: a message for each worker, with its descriptors-->  fork server
                                                                                  | fork
    this process  <--pipe: its pid, once it is a child of this process--  worker  <--fork--  process that ends at once

A worker becomes a child of this process, as if it had been started here: its parent ends, and this process adopts
orphans while a worker is being started (PR_SET_CHILD_SUBREAPER). So the fork server can die without harm to any worker;
the next worker to be started gets a new fork server. The fork server ends when this process closes the socket or dies.

`multiprocessing` has a fork server, too; docs/decisions.md says why we do not use it.
"""

import asyncio
import ctypes
import gc
import importlib
import os
import pickle
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection, Pipe
from typing import Any

from sonorant.engine.ipc.child import Child, readable, write_job
from sonorant.engine.ipc.child import main as run_job
from sonorant.engine.ipc.handed import SocketEnd
from sonorant.logs import start

MAX_FDS = 64  # per worker, which needs fewer than ten
CANCEL_TIMEOUT_S = 5.0

_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37


class ForkServer:
    """Starts its process at the first `fork`, or `ahead` of it, and stops it when the last holder releases it.

    May be used by one thread at a time, and by any number of event loops one after the other.
    """

    def __init__(self, *modules: str) -> None:
        """`modules` are imported in the process. A failing import is ignored there: the workers will report it."""
        self._modules = modules
        self._num_holders = 0
        self._process: Child | None = None
        self._requests: socket.socket  # to the process
        self._num_awaited = 0  # workers that are being started
        self._took_orphans = False  # whether this process adopted orphans before the first of them

    @contextmanager
    def ahead(self) -> Iterator[None]:
        """Start the process now, so that its imports are under way when the first worker is wanted, and hold it."""
        self.hold()
        try:
            with suppress(OSError):  # the first worker will report it
                if self._process is None:
                    self._start()
            yield
        finally:
            self.release()

    def hold(self) -> None:
        self._num_holders += 1

    def release(self) -> None:
        self._num_holders -= 1
        if not self._num_holders:
            self._stop()

    def rest(self) -> None:
        """End the process, which takes as much memory as a worker without its weights, until the next worker is wanted.
        That one then waits for the imports. Does nothing while a worker is being started."""
        if not self._num_awaited:
            self._stop()

    @property
    def pid(self) -> int | None:
        """The fork server's process id, or None while it is not running."""
        return None if self._process is None or self._process.is_dead else self._process.pid

    async def fork(
        self,
        name: str,
        target: Callable[..., None],
        args: tuple[Any, ...],
        environment: Mapping[str, str],
        timeout_s: float,
    ) -> Child:
        """Start a worker that runs `target`, with `environment` added to ours. It gets what `args` hold and no other
        descriptors. The caller must hold the fork server.

        Environment variables that a library reads while it is loaded have the values from the fork server's start.

        Raises OSError if the worker cannot be started. Then, and after a cancellation, which waits until the fork is
        done, nothing is left behind.
        """
        ready, child_end = Pipe(duplex=False)
        with ExitStack() as undo, self._taking_orphans():
            undo.callback(ready.close)
            with child_end, os.fdopen(os.memfd_create("sonorant-job"), "w+b") as file:
                pickle.dump((name, sys.path, {**os.environ, **environment}), file)
                self._send([file.fileno(), *write_job(file, target, args, child_end)])
            pid, cancelled = await self._told(ready, timeout_s)
            if pid:
                undo.callback(os.waitpid, pid, 0)
                undo.callback(os.kill, pid, signal.SIGKILL)
                child = Child(name, pid, ready)
                undo.pop_all()
                undo.callback(child.close)
            if cancelled is not None:
                raise cancelled
            if not pid:
                raise OSError("the fork server died or could not fork a worker; see its log")
            undo.pop_all()
            return child

    async def _told(self, ready: Connection, timeout_s: float) -> tuple[int, asyncio.CancelledError | None]:
        """Wait for the worker's pid; return 0 if there is no worker. Kill the fork server if it hangs.

        A cancellation only shortens the wait; its error is returned.
        """
        cancelled = None
        answer = asyncio.ensure_future(readable(ready.fileno()))
        while not answer.done():
            try:
                await asyncio.wait([answer], timeout=timeout_s)
                if not answer.done():
                    self._stop()
            except asyncio.CancelledError as error:
                cancelled, timeout_s = error, min(timeout_s, CANCEL_TIMEOUT_S)
        os.set_blocking(ready.fileno(), True)  # uvloop makes what it polls non-blocking
        try:
            return int(ready.recv()), cancelled
        except EOFError:
            return 0, cancelled

    def _send(self, fds: list[int]) -> None:
        if self._process is None:
            self._start()
        try:
            socket.send_fds(self._requests, [b"\0"], fds)
        except ConnectionError:  # the fork server has died
            self._stop()
            self._start()
            socket.send_fds(self._requests, [b"\0"], fds)

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                end = SocketEnd(theirs)
                self._process = Child.spawn("forker", serve, (self._modules, end))
        except BaseException:
            ours.close()
            raise
        ours.setblocking(False)  # its buffer has room for many messages
        self._requests = ours

    def _stop(self) -> None:
        if self._process is not None:
            self._requests.close()
            self._process.close()
            self._process = None

    @contextmanager
    def _taking_orphans(self) -> Iterator[None]:
        """Let this process adopt orphans while any worker is being started."""
        self._num_awaited += 1
        if self._num_awaited == 1:
            self._took_orphans = _take_orphans(True)
        try:
            yield
        finally:
            self._num_awaited -= 1
            if not self._num_awaited:
                _take_orphans(self._took_orphans)


WORKERS = ForkServer("sonorant.engine.preloaded")  # shared by all engines of this process


def _take_orphans(value: bool) -> bool:
    """Return whether this process did so before."""
    before, prctl = ctypes.c_int(), ctypes.CDLL(None).prctl
    prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    prctl(_PR_SET_CHILD_SUBREAPER, int(value), 0, 0, 0)
    return bool(before.value)


def serve(modules: tuple[str, ...], requests: SocketEnd, ready: Connection) -> None:
    """Run the fork server; return when the parent is gone. A forked worker never returns from here."""
    ready.close()
    gc.disable()  # collections took an eighth of the imports' time
    with _ended_with(requests.socket):
        for module in modules:
            with suppress(Exception):
                importlib.import_module(module)
    gc.collect()
    start.phase("modules of the workers")
    gc.freeze()  # keeps collections in the workers from writing to the pages that all of them share
    gc.enable()
    # Only look at the message: the process that receives it holds its descriptors, and the fork server must not.
    while requests.socket.recv(1, socket.MSG_PEEK):
        start.end()  # and says nothing if the owner was gone before
        if not (pid := os.fork()):
            _fork_worker(requests.socket)
        os.waitpid(pid, 0)


@contextmanager
def _ended_with(parent: socket.socket) -> Iterator[None]:
    """End this process at once if the parent goes meanwhile: imports take seconds, and nobody needs them any more."""
    done = os.eventfd(0)

    def watch() -> None:
        poll = select.poll()
        poll.register(parent, 0)  # only for POLLHUP, as messages wait until all is imported
        poll.register(done, select.POLLIN)
        if parent.fileno() in dict(poll.poll()):
            os._exit(0)

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        os.eventfd_write(done, 1)
        watching.join()  # a fork would copy only one thread
        os.close(done)


def _fork_worker(requests: socket.socket) -> None:
    """Fork the worker and end; runs in a process forked for this, so that the worker becomes an orphan."""
    _, fds, _, _ = socket.recv_fds(requests, 1, MAX_FDS, socket.MSG_CMSG_CLOEXEC)
    requests.close()
    parent = os.pidfd_open(os.getpid())
    if os.fork():
        os._exit(0)
    select.select([parent], [], [])  # wait until our parent has ended and the owner has adopted us
    os.close(parent)
    file = os.fdopen(fds[0], "rb")
    name, sys.path[:], environment = pickle.load(file)
    os.environ.clear()
    os.environ.update(environment)
    with Connection(os.dup(fds[1]), readable=False) as ready:
        try:
            ready.send(os.getpid())
        except BrokenPipeError:  # the owner is gone
            os._exit(0)
    run_job(f"sonorant-{name}", file, fds[1:])
