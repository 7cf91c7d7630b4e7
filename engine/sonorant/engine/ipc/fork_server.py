"""Forks workers from a process that has imported what they need, torch above all, which takes longer than the rest.

    this process  --socket: a message for each worker, with its descriptors-->  fork server
                                                                                  | fork
    this process  <--pipe: its pid, once it is a child of this process--  worker  <--fork--  one that ends at once

A worker becomes a child of this process, as if it had been started here: its parent ends, and this process takes
orphans for as long as a worker is on its way (PR_SET_CHILD_SUBREAPER). So the fork server may die without harm to any
worker; the next one that is needed gets another fork server. It ends when this process closes the socket or dies.

`multiprocessing` has a fork server, too; docs/decisions.md says why this is not it.
"""

import asyncio
import ctypes
import gc
import importlib
import os
import pickle
import select
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection, Pipe
from typing import Any

from sonorant.engine.ipc.child import Adopted, Child, readable, write_job
from sonorant.engine.ipc.child import main as run_job
from sonorant.engine.ipc.inherited import Inheritable, SocketEnd, renumber

MAX_FDS = 64  # a worker is given less than ten
CANCEL_TIMEOUT_S = 5.0

_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37


class ForkServer:
    """Takes nothing until the first `fork`, and keeps nothing once nobody holds it.

    For one thread at a time, and any number of event loops one after the other.
    """

    def __init__(self, *modules: str) -> None:
        """`modules` are imported there. One that cannot be is left to the workers, which say why."""
        self._modules = modules
        self._num_holders = 0
        self._process: Child | None = None
        self._requests: socket.socket  # to the process
        self._num_awaited = 0  # workers that are on their way
        self._took_orphans = False  # before there were any

    def hold(self) -> None:
        self._num_holders += 1

    def release(self) -> None:
        self._num_holders -= 1
        if not self._num_holders:
            self._stop()

    @property
    def pid(self) -> int | None:
        """Of the process, while there is one."""
        return None if self._process is None or self._process.is_dead else self._process.pid

    async def fork(
        self,
        name: str,
        target: Callable[..., None],
        args: tuple[Any, ...],
        inherited: Iterable[Inheritable],
        environment: Mapping[str, str],
        timeout_s: float,
    ) -> Child:
        """A worker that runs `target`; `environment` is what it has beside ours. For those who hold the fork server.

        What a library reads when it is loaded is as it was when the fork server started.

        Raises OSError if it cannot be started; nothing is left then, nor after a cancellation, which waits for what has
        been begun.
        """
        ready, child_end = Pipe(duplex=False)
        with ExitStack() as undo, self._taking_orphans():
            undo.callback(ready.close)
            with child_end, os.fdopen(os.memfd_create("sonorant-job"), "w+b") as file:
                fds = [file.fileno(), child_end.fileno(), *(fd for each in inherited for fd in each.fds())]
                pickle.dump((name, fds, sys.path, {**os.environ, **environment}), file)
                write_job(file, target, args, child_end)
                self._send(fds)
            cancelled = await self._answered(ready.fileno(), timeout_s)
            if pid := _told(ready):
                process = Adopted(pid)
                undo.callback(process.wait)
                undo.callback(process.kill)
            if cancelled is not None:
                raise cancelled
            if not pid:
                raise OSError("the process that forks workers died, or could not; see its log")
            child = Child(name, process, ready)
            undo.pop_all()
            return child

    async def _answered(self, fd: int, timeout_s: float) -> asyncio.CancelledError | None:
        """Returns when it is readable or closed, which a fork server that hangs is killed for. Not to be cancelled."""
        cancelled = None
        answer = asyncio.ensure_future(readable(fd))
        while not answer.done():
            try:
                await asyncio.wait([answer], timeout=timeout_s)
                if not answer.done():
                    self._stop()
            except asyncio.CancelledError as error:
                cancelled, timeout_s = error, min(timeout_s, CANCEL_TIMEOUT_S)
        return cancelled

    def _send(self, fds: list[int]) -> None:
        if self._process is None:
            self._start()
        try:
            socket.send_fds(self._requests, [b"\0"], fds)
        except ConnectionError:  # it has died
            self._stop()
            self._start()
            socket.send_fds(self._requests, [b"\0"], fds)

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                end = SocketEnd(theirs)
                self._process = Child.spawn("forker", serve, (self._modules, end), [end])
        except BaseException:
            ours.close()
            raise
        ours.setblocking(False)  # it has room for many messages
        self._requests = ours

    def _stop(self) -> None:
        if self._process is not None:
            self._requests.close()
            self._process.close()
            self._process = None

    @contextmanager
    def _taking_orphans(self) -> Iterator[None]:
        """As long as any worker is on its way."""
        self._num_awaited += 1
        if self._num_awaited == 1:
            self._took_orphans = _takes_orphans()
            _take_orphans(True)
        try:
            yield
        finally:
            self._num_awaited -= 1
            if not self._num_awaited:
                _take_orphans(self._took_orphans)


WORKERS = ForkServer("sonorant.engine.preloaded")  # this process's, for all its engines


def _told(ready: Connection) -> int:
    """The worker's pid; 0 if there is none."""
    os.set_blocking(ready.fileno(), True)  # uvloop unblocks what it polls
    try:
        return int(ready.recv())
    except EOFError:
        return 0


def _takes_orphans() -> bool:
    answer = ctypes.c_int()
    ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(answer), 0, 0, 0)
    return bool(answer.value)


def _take_orphans(value: bool) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(value), 0, 0, 0)


def serve(modules: tuple[str, ...], requests: SocketEnd, ready: Connection) -> None:
    """Entry of the process. Returns when the parent is gone. A worker leaves this only by its end."""
    ready.close()
    for module in modules:
        with suppress(Exception):
            importlib.import_module(module)
    gc.collect()
    gc.freeze()  # so that collections in the workers leave the pages alone that all of them share
    while requests.socket.recv(1, socket.MSG_PEEK):  # whoever takes the message holds the descriptors: not this process
        if not (pid := os.fork()):
            _fork_worker(requests.socket)
        os.waitpid(pid, 0)


def _fork_worker(requests: socket.socket) -> None:
    """In a process of its own, which ends; the one that it leaves behind is the worker."""
    _, fds, _, _ = socket.recv_fds(requests, 1, MAX_FDS, socket.MSG_CMSG_CLOEXEC)
    requests.close()
    parent = os.pidfd_open(os.getpid())
    if os.fork():
        os._exit(0)
    select.select([parent], [], [])  # until we are an orphan, and so the service process's child
    os.close(parent)
    file = os.fdopen(fds[0], "rb")
    name, numbers, sys.path[:], environment = pickle.load(file)
    renumber(numbers, fds)
    os.environ.clear()
    os.environ.update(environment)
    with Connection(os.dup(fds[1]), readable=False) as ready:
        try:
            ready.send(os.getpid())
        except BrokenPipeError:  # who wanted a worker has gone meanwhile
            os._exit(0)
    run_job(f"sonorant-{name}", file)
