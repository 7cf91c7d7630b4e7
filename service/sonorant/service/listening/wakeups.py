"""How gRPC wakes the event loop: through a pipe that is emptied at each look, in place of a socket.

gRPC's thread hands events to the loop through a queue, and writes a byte for each of them to wake it. The loop takes
all events of the queue, but only one byte per turn. So a thousand events are followed by a thousand turns that find
nothing; and as a socket holds only 278 such bytes, gRPC's thread then waits for these turns before it hands on more.
Everybody's events are behind them. A pipe holds 65,536 bytes.

Only the first loop empties it. If another one uses gRPC after it, as in tests, gRPC's look ends early at an event of a
loop that is closed, and more looks must follow: one per event.
"""

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import ReferenceType, WeakKeyDictionary, ref

from grpc._cython import cygrpc

MOST_BYTES = 65_536  # what a pipe holds
MANY = 16  # events at the same time

_Tell = Callable[[], None]
_told: WeakKeyDictionary[asyncio.AbstractEventLoop, _Tell] = WeakKeyDictionary()  # by loop; all use the same pipe


class _End:
    """One end of a pipe, as far as gRPC uses a socket."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._first: ReferenceType[asyncio.AbstractEventLoop] | None = None

    def fileno(self) -> int:
        return self._fd

    def setblocking(self, blocking: bool) -> None:
        os.set_blocking(self._fd, blocking)

    def recv(self, _num_bytes: int) -> bytes:
        loop = asyncio.get_running_loop()
        self._first = self._first or ref(loop)
        try:
            data = os.read(self._fd, MOST_BYTES if self._first() is loop else 1)
        except BlockingIOError:
            return b""
        if len(data) >= MANY and (tell := _told.get(loop)):
            tell()
        return data

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


class _Pipes:
    """Stands for the module `socket` while gRPC sets itself up."""

    def socketpair(self) -> tuple[_End, _End]:
        read, write = os.pipe()
        return _End(read), _End(write)

    def __getattr__(self, name: str) -> Any:
        return getattr(socket, name)


@contextmanager
def through_a_pipe(on_many: Callable[[], None]) -> Iterator[None]:
    """Have gRPC use a pipe if it sets itself up meanwhile, which it does once, with its first server or channel.

    Then `on_many` is called in the running loop before gRPC deals with events, if there are MANY. Of each loop the
    first one counts.
    """
    _told.setdefault(asyncio.get_running_loop(), on_many)
    cygrpc.socket = _Pipes()
    try:
        yield
    finally:
        cygrpc.socket = socket
