"""How many connections a process may have, and which one is closed when there is no room for a new one.

A connection either waits for its caller, who has not sent a whole request or reads nothing, or the gateway is busy with
it. If there are too many, the one that has waited longest goes: so nobody can keep others out by holding connections.
"""

import logging
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

log = logging.getLogger(__name__)

KEPT_FILES = 64  # descriptors for other things: channels to servers, files, the log
TOLD_EVERY_S = 60.0


class Connection(Protocol):
    """A transport, or a handshake that will make one."""

    def abort(self) -> None:
        """Close it at once."""


def most_connections(wanted: int) -> int:
    """As many as wanted, or fewer if this process may not open as many files."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if allowed == resource.RLIM_INFINITY else max(1, min(wanted, allowed - KEPT_FILES))


class OpenConnections:
    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: dict[Connection, None] = {}  # the one that has waited longest first
        self._busy: set[Connection] = set()
        self._num_closed = 0  # since it was last told
        self._told_s = -TOLD_EVERY_S

    def __len__(self) -> int:
        return len(self._waiting) + len(self._busy)

    def admit(self, connection: Connection) -> None:
        """Count a new connection, which waits for its caller. Close one that has waited longer, or else this one, if
        there are too many."""
        self._waiting[connection] = None
        if len(self) > self._most:
            self.close_one()

    def close_one(self) -> None:
        """Close the connection that has waited longest, if any is waiting."""
        if self._waiting:
            connection = next(iter(self._waiting))
            del self._waiting[connection]
            connection.abort()
            self._num_closed += 1
            self._tell()

    def replace(self, old: Connection, new: Connection) -> None:
        """`new` goes on where `old` was."""
        if old in self._waiting:
            del self._waiting[old]
            self._waiting[new] = None
        else:
            new.abort()

    def forget(self, connection: Connection) -> None:
        self._waiting.pop(connection, None)
        self._busy.discard(connection)

    @contextmanager
    def busy(self, connection: Connection | None) -> Iterator[None]:
        """The gateway works for its caller. None = it is lost already."""
        if connection in self._waiting:
            del self._waiting[connection]
            self._busy.add(connection)
        try:
            yield
        finally:
            self._wait(connection)

    @contextmanager
    def waiting(self, connection: Connection | None) -> Iterator[None]:
        """Within `busy`: the gateway waits for the rest of a request."""
        self._wait(connection)
        try:
            yield
        finally:
            if connection in self._waiting:
                del self._waiting[connection]
                self._busy.add(connection)

    def _wait(self, connection: Connection | None) -> None:
        if connection in self._busy:
            self._busy.remove(connection)
            self._waiting[connection] = None

    def _tell(self) -> None:
        now_s = time.monotonic()
        if now_s - self._told_s >= TOLD_EVERY_S:
            log.warning(
                "%d connections are open, as many as may be: %d that waited for their callers were closed; allow more "
                "with --max-connections and `ulimit -n`",
                len(self),
                self._num_closed,
            )
            self._told_s, self._num_closed = now_s, 0
