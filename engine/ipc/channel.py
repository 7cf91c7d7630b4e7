"""What a worker loop knows of its neighbours: an inbox and an outbox of records. Nothing here knows what carries them.

`QueueChannel` is both ends in memory; `engine.ipc.ring` carries records between processes.
"""

from collections import deque
from collections.abc import Sequence
from threading import Condition
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class PeerGone(Exception):
    """The other side of a channel has closed it or died, and nothing it sent is left to read."""


class Inbox(Protocol[T]):
    def drain(self) -> list[T]:
        """Everything that is there, without blocking. Raises PeerGone if that is nothing and nothing can come.

        Both raise it, so that a busy loop, which only drains, notices its orphanhood as soon as one that waits.
        """

    def wait(self, timeout_s: float | None = None) -> None:
        """Block until there is something to drain or the time is over. Raises PeerGone as `drain` does."""


class Outbox(Protocol[T_contra]):
    def publish(self, records: Sequence[T_contra]) -> None:
        """Hand over the records in order, as one batch. Raises PeerGone if nobody can read them any more."""


class QueueChannel(Generic[T]):
    """Both ends of a channel inside one process, for one thread or two."""

    def __init__(self) -> None:
        self._records: deque[T] = deque()
        self._closed = False
        self._changed = Condition()

    def publish(self, records: Sequence[T]) -> None:
        with self._changed:
            if self._closed:
                raise PeerGone
            self._records.extend(records)
            self._changed.notify_all()

    def drain(self) -> list[T]:
        with self._changed:
            if self._closed and not self._records:
                raise PeerGone
            records = list(self._records)
            self._records.clear()
            return records

    def wait(self, timeout_s: float | None = None) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._records or self._closed, timeout_s)
            if self._closed and not self._records:
                raise PeerGone

    def close(self) -> None:
        """What was published can still be read; then both sides meet PeerGone."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
