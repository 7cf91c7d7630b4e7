"""Bytes that are too many for a message, in memory of their own. They are passed on by a file descriptor."""

import os

from sonorant.engine.ipc.handed import Descriptor


class SharedBytes:
    """Use it as a context manager, in the process that made it and in the one that got it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def of(cls, data: bytes) -> "SharedBytes":
        """Raises OSError if there is no memory or descriptor for it."""
        fd = os.memfd_create("sonorant-bytes")
        try:
            with open(fd, "wb", closefd=False) as file:
                file.write(data)
        except BaseException:
            os.close(fd)
            raise
        return cls(fd)

    def read(self) -> bytes:
        return os.pread(self._fd, os.fstat(self._fd).st_size, 0)

    def __enter__(self) -> "SharedBytes":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def __getstate__(self) -> Descriptor:
        return Descriptor(self._fd)

    def __setstate__(self, fd: int) -> None:
        self._fd = fd
