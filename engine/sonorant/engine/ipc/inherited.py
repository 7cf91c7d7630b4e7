"""File descriptors that a process is given when it is started. What holds some pickles them as the parent's numbers."""

import os
import socket
from collections.abc import Callable, Iterable
from typing import Protocol

_numbers: dict[int, int] = {}  # ours, by the parent's; a process that kept them all has none


class Inheritable(Protocol):
    def fds(self) -> tuple[int, ...]: ...


class SocketEnd:
    """One end of a socket pair, to be passed on."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end

    def fds(self) -> tuple[int, ...]:
        return (self.socket.fileno(),)

    def __reduce__(self) -> tuple[Callable[[int], "SocketEnd"], tuple[int]]:
        return _inherited_socket, (self.socket.fileno(),)


def renumber(parents: Iterable[int], ours: Iterable[int]) -> None:
    _numbers.update(zip(parents, ours, strict=True))


def inherited(fd: int) -> int:
    """Our number of what is `fd` in the parent. Children of ours do not get it unasked."""
    fd = _numbers.get(fd, fd)
    os.set_inheritable(fd, False)
    return fd


def _inherited_socket(fd: int) -> SocketEnd:
    return SocketEnd(socket.socket(fileno=inherited(fd)))
