"""Bytes that are too many for a message, in memory of their own. They are passed on by a file descriptor."""

import os
from collections.abc import Callable

from sonorant.engine.ipc.inherited import inherited


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

    def fds(self) -> tuple[int, ...]:
        return (self._fd,)

    def __enter__(self) -> "SharedBytes":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def __reduce__(self) -> "tuple[Callable[[int], SharedBytes], tuple[int]]":
        return _inherited, (self._fd,)  # see sonorant.engine.ipc.inherited


def _inherited(fd: int) -> SharedBytes:
    return SharedBytes(inherited(fd))
