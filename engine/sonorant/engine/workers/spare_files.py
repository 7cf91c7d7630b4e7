"""Reserves open files, so that workers can be replaced even when this process has reached its limit of open files."""

import contextlib
import os

COUNT = 32  # starting a pair needs about 25


class SpareFiles:
    def __init__(self) -> None:
        self._fds: list[int] = []

    def open(self) -> None:
        """Reserve COUNT files, or as many as the system still gives."""
        with contextlib.suppress(OSError):
            while len(self._fds) < COUNT:
                self._fds.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def close(self) -> None:
        while self._fds:
            os.close(self._fds.pop())
