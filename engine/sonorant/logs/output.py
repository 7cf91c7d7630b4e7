"""Writes to stderr or stdout without waiting for whoever reads it."""

import errno
import os
import select
import stat


class Output:
    """A pipe or a terminal that nobody reads takes some 64 kB. A plain write would then stop the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = self._inherited = descriptor
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode) or os.isatty(descriptor):
            try:  # to open it anew, because O_NONBLOCK would hold for every process that has inherited it
                flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY
                self._descriptor = os.open(f"/proc/self/fd/{descriptor}", flags)
            except OSError:  # it is another user's
                pass
        self._writable = select.poll()
        self._writable.register(self._descriptor, select.POLLOUT)

    def write(self, data: bytes) -> int:
        """Return how many bytes were taken. Raises OSError, such as BlockingIOError."""
        if not self._writable.poll(0):
            raise BlockingIOError(errno.EAGAIN, "nobody reads it")
        return os.write(self._descriptor, data)

    def close(self) -> None:
        if self._descriptor != self._inherited:
            os.close(self._descriptor)
