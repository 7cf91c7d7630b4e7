"""Inboxes and outboxes of records: all that a worker loop knows of its neighbours.

`QueueChannel` is both ends within one process. Between processes the ends are `RingOutbox` and `RingInbox`
(sonorant.engine.ipc.ring).
"""

from collections import deque
from collections.abc import Sequence
from threading import Condition
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class PeerGone(Exception):
    """The other side of a channel has closed it or died, and everything it sent has been read."""


class RecordInbox(Protocol[T]):
    def drain(self) -> list[T]:
        """Take all records that are there, without blocking. Raises PeerGone if there are none and none can come.

        `drain` and `wait` both raise it, because a busy loop only drains and has to notice, too, that it is alone.
        """

    def wait(self, timeout_s: float | None = None) -> None:
        """Block until there is something to drain or `timeout_s` has passed. Raises PeerGone as `drain` does."""


class RecordOutbox(Protocol[T_contra]):
    def publish(self, records: Sequence[T_contra]) -> None:
        """Send the records in order, as one batch. Raises PeerGone if nobody can read them any more."""


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
        """Close both ends. Published records can still be read; then both ends raise PeerGone."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
