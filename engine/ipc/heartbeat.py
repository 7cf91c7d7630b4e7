"""Since when a worker has been busy with one step: one shared word, written by the worker, read by the supervisor.

A dead worker is noticed by its process; this is for one that hangs. Zero means idle.
"""

import mmap
import os
import time
from collections.abc import Callable

SIZE_BYTES = mmap.PAGESIZE


class Heartbeat:
    def __init__(self) -> None:
        fd = os.memfd_create("sonorant-heartbeat")
        os.ftruncate(fd, SIZE_BYTES)
        self._attach(fd)

    def _attach(self, fd: int) -> None:
        self._fd = fd
        self._mapping = mmap.mmap(fd, SIZE_BYTES)
        self._busy_since_ns = memoryview(self._mapping).cast("Q")  # one aligned 64-bit store or load per access

    def busy(self) -> None:
        """A step begins."""
        self._busy_since_ns[0] = time.monotonic_ns()  # the same clock in every process

    def idle(self) -> None:
        """The step is over; waiting is not being busy."""
        self._busy_since_ns[0] = 0

    def busy_s(self) -> float:
        """How long the present step has taken so far; 0 when idle."""
        since_ns = self._busy_since_ns[0]
        return (time.monotonic_ns() - since_ns) / 1e9 if since_ns else 0.0

    def fds(self) -> tuple[int, ...]:
        return (self._fd,)

    def close(self) -> None:
        self._busy_since_ns.release()
        self._mapping.close()
        os.close(self._fd)

    def __reduce__(self) -> tuple[Callable[[int], "Heartbeat"], tuple[int]]:
        return _inherited, (self._fd,)  # see engine.ipc.child


def _inherited(fd: int) -> Heartbeat:
    os.set_inheritable(fd, False)
    heartbeat = object.__new__(Heartbeat)
    heartbeat._attach(fd)
    return heartbeat
