"""What a worker is doing and has done: a few shared words, written by the worker, read by the supervisor.

Since when it has been busy with one step (0 = idle) is for noticing one that hangs; its process tells of one that died.
The rest only grows, and is for whoever wants to know how full its steps are and how much of the time they take.
"""

import mmap
import os
import time
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

SIZE_BYTES = mmap.PAGESIZE
ROW_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # steps with up to so many rows; one bucket more for the rest

_BUSY_SINCE_NS, _BUSY_NS, _ROWS, _STEPS = 0, 1, 2, 3  # words; from _STEPS on one for each bucket


@dataclass(frozen=True, slots=True)
class Work:
    """Done so far. A step that ends while this is read may be in some of the numbers only."""

    busy_s: float
    num_rows: int
    num_steps: tuple[int, ...]  # by the bucket of their rows


class Heartbeat:
    def __init__(self) -> None:
        fd = os.memfd_create("sonorant-heartbeat")
        os.ftruncate(fd, SIZE_BYTES)
        self._attach(fd)

    def _attach(self, fd: int) -> None:
        self._fd = fd
        self._mapping = mmap.mmap(fd, SIZE_BYTES)
        self._words = memoryview(self._mapping).cast("Q")  # one aligned 64-bit store or load per access

    def busy(self) -> None:
        """A step begins."""
        self._words[_BUSY_SINCE_NS] = time.monotonic_ns()  # the same clock in every process

    def idle(self, num_rows: int) -> None:
        """The step is over; waiting is not being busy. Without rows it was none."""
        words = self._words
        if num_rows:
            words[_BUSY_NS] += time.monotonic_ns() - words[_BUSY_SINCE_NS]
            words[_ROWS] += num_rows
            words[_STEPS + bisect_left(ROW_BUCKETS, num_rows)] += 1
        words[_BUSY_SINCE_NS] = 0

    def busy_s(self) -> float:
        """How long the present step has taken so far; 0 when idle."""
        since_ns = self._words[_BUSY_SINCE_NS]
        return (time.monotonic_ns() - since_ns) / 1e9 if since_ns else 0.0

    def work(self) -> Work:
        words = self._words
        num_steps = tuple(words[_STEPS : _STEPS + len(ROW_BUCKETS) + 1])
        return Work(words[_BUSY_NS] / 1e9, words[_ROWS], num_steps)

    def fds(self) -> tuple[int, ...]:
        return (self._fd,)

    def close(self) -> None:
        self._words.release()
        self._mapping.close()
        os.close(self._fd)

    def __reduce__(self) -> tuple[Callable[[int], "Heartbeat"], tuple[int]]:
        return _inherited, (self._fd,)  # see engine.ipc.child


def _inherited(fd: int) -> Heartbeat:
    os.set_inheritable(fd, False)
    heartbeat = object.__new__(Heartbeat)
    heartbeat._attach(fd)
    return heartbeat
