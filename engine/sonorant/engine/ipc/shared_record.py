"""One NumPy record in memory that several processes share, and a lock for those who change it.

The kernel gives the lock back when the process that holds it dies. So a change must leave the record valid after each
of its stores; a store of one aligned number is never seen in part.
"""

import fcntl
import mmap
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from sonorant.engine.ipc.inherited import inherited


class SharedRecord:
    """Zero at first. Use it as a context manager to hold the lock, for some microseconds, on the event loop's thread.

    It can be pickled for another process, which must get the file descriptors `fds` as well.
    """

    def __init__(self, dtype: np.dtype[np.void]) -> None:
        self._fd = os.memfd_create("sonorant")
        try:
            os.ftruncate(self._fd, dtype.itemsize)
            self._map(dtype)
        except OSError:
            os.close(self._fd)
            raise

    def _map(self, dtype: np.dtype[np.void]) -> None:
        self._dtype = dtype
        self._record = np.frombuffer(mmap.mmap(self._fd, dtype.itemsize), dtype)

    def field(self, name: str) -> npt.NDArray[Any]:
        """Return a view of a field, which lives as long as whoever uses it."""
        view: npt.NDArray[Any] = self._record[name][0]
        return view

    def __enter__(self) -> None:
        fcntl.lockf(self._fd, fcntl.LOCK_EX)  # a lock of the process; those of `flock` go along with the descriptor

    def __exit__(self, *_: object) -> None:
        fcntl.lockf(self._fd, fcntl.LOCK_UN)

    def fds(self) -> tuple[int, ...]:
        return (self._fd,)

    def close(self) -> None:
        """Close the descriptor. That of the mapping is closed with the last view."""
        os.close(self._fd)
        del self._record

    def __reduce__(self) -> "tuple[Callable[[int, np.dtype[np.void]], SharedRecord], tuple[int, np.dtype[np.void]]]":
        return _inherited, (self._fd, self._dtype)  # see sonorant.engine.ipc.inherited


def _inherited(fd: int, dtype: np.dtype[np.void]) -> SharedRecord:
    record = object.__new__(SharedRecord)
    record._fd = inherited(fd)
    record._map(dtype)
    return record
