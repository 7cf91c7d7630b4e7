"""File descriptors that a process gets from another one. Objects that hold some pickle them by their numbers there."""

import os
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

_numbers: dict[int, int] = {}  # the other's number -> ours; empty in a child that kept all numbers


class Inheritable(Protocol):
    def fds(self) -> tuple[int, ...]: ...


class SocketEnd:
    """One end of a socket pair, which a child can inherit."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end

    def fds(self) -> tuple[int, ...]:
        return (self.socket.fileno(),)

    def __reduce__(self) -> tuple[Callable[[int], "SocketEnd"], tuple[int]]:
        return _inherited_socket, (self.socket.fileno(),)


def renumber(theirs: Iterable[int], ours: Iterable[int]) -> None:
    _numbers.update(zip(theirs, ours, strict=True))


@contextmanager
def renumbered(theirs: Iterable[int], ours: Iterable[int]) -> Iterator[None]:
    """While this is open, these numbers hold, and no others do."""
    before = dict(_numbers)
    _numbers.clear()
    renumber(theirs, ours)
    try:
        yield
    finally:
        _numbers.clear()
        _numbers.update(before)


def inherited(fd: int) -> int:
    """Return our number of the other's descriptor `fd`, and keep our own children from inheriting it by default."""
    fd = _numbers.get(fd, fd)
    os.set_inheritable(fd, False)
    return fd


def _inherited_socket(fd: int) -> SocketEnd:
    return SocketEnd(socket.socket(fileno=inherited(fd)))
