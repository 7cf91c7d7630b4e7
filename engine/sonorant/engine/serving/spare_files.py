"""Open files kept back, so that workers can be replaced when somebody has taken all others."""

import contextlib
import os

COUNT = 32  # starting a pair takes about 25


class SpareFiles:
    def __init__(self) -> None:
        self._fds: list[int] = []

    def open(self) -> None:
        """As many as there are, if not all."""
        with contextlib.suppress(OSError):
            while len(self._fds) < COUNT:
                self._fds.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def close(self) -> None:
        while self._fds:
            os.close(self._fds.pop())
