"""File descriptors that a child process inherits. Objects that hold some pickle them by their numbers in the parent."""

import os
import socket
from collections.abc import Callable, Iterable
from typing import Protocol

_numbers: dict[int, int] = {}  # the parent's number -> ours; empty in a child that kept all numbers


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


def renumber(parents: Iterable[int], ours: Iterable[int]) -> None:
    _numbers.update(zip(parents, ours, strict=True))


def inherited(fd: int) -> int:
    """Return our number of the parent's descriptor `fd`, and keep our own children from inheriting it by default."""
    fd = _numbers.get(fd, fd)
    os.set_inheritable(fd, False)
    return fd


def _inherited_socket(fd: int) -> SocketEnd:
    return SocketEnd(socket.socket(fileno=inherited(fd)))
