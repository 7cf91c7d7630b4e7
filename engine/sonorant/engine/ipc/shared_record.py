"""One NumPy record in memory that several processes share, and a lock for the process that changes it.

The kernel gives the lock back when the process that holds it dies. So a change must leave the record valid after each
of its stores; a store of one aligned number is never seen in part.
"""

import fcntl
import mmap
import os
from typing import Any

import numpy as np
import numpy.typing as npt

from sonorant.engine.ipc.handed import Descriptor


class SharedRecord:
    """Zero at first. Use it as a context manager to hold the lock, for some microseconds, on the event loop's thread.

    It can be handed to another process: see sonorant.engine.ipc.handed. A child that keeps the numbers of the
    descriptors `fds` can also get it pickled.
    """

    def __init__(self, dtype: np.dtype[np.void]) -> None:
        fd = os.memfd_create("sonorant")
        try:
            os.ftruncate(fd, dtype.itemsize)
            self.__setstate__((fd, dtype))
        except OSError:
            os.close(fd)
            raise

    def __getstate__(self) -> tuple[Descriptor, np.dtype[np.void]]:
        return Descriptor(self._fd), self._dtype

    def __setstate__(self, state: tuple[int, np.dtype[np.void]]) -> None:
        self._fd, self._dtype = state
        os.set_inheritable(self._fd, False)
        self._record = np.frombuffer(mmap.mmap(self._fd, self._dtype.itemsize), self._dtype)

    def field(self, name: str) -> npt.NDArray[Any]:
        """Return a view of a field, which keeps the memory alive."""
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
