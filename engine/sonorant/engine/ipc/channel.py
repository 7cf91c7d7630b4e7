"""Inboxes and outboxes of records: all that a worker loop knows of its neighbours.

`QueueChannel` is both ends within one process; `RingOutbox` and `RingInbox` are the two ends between processes.

Doorbells wake the process on the other side of a ring, and show its death. They carry no data.

Each side of a ring holds one end of a socket pair. The writer rings after it has published a batch, the reader after it
has made room. Ringing sends one byte. A process that is woken first clears all bytes and then looks at the shared
memory. If a record is published after that look, its byte is still to come, so no wake-up is lost. If the socket is
full, the peer has unread bytes and will look anyway.

When a process dies the kernel closes its end, and the other end reads end-of-file: hence exactly one process may hold
each end.
"""

import select
import socket
import time
from collections import deque
from collections.abc import Sequence
from threading import Condition
from typing import Generic, Protocol, TypeVar, cast

from sonorant.engine.ipc.handed import Descriptor
from sonorant.engine.ipc.messages import Record, decode, encode
from sonorant.engine.ipc.ring import Ring

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)
R = TypeVar("R", bound=Record)


class PeerGone(Exception):
    """The other side of a channel has closed it or died, and everything it sent has been read."""


class Inbox(Protocol[T]):
    def drain(self) -> list[T]:
        """Take all records that are there, without blocking. Raises PeerGone if there are none and none can come.

        `drain` and `wait` both raise it, because a busy loop only drains and has to notice, too, that it is alone.
        """

    def wait(self, timeout_s: float | None = None) -> None:
        """Block until there is something to drain or `timeout_s` has passed. Raises PeerGone as `drain` does."""


class Outbox(Protocol[T_contra]):
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


class Doorbell:
    def __init__(self, fd: int) -> None:
        """`fd`: of a socket, which is the doorbell's from now on."""
        self.__setstate__(fd)

    def __setstate__(self, fd: int) -> None:
        self.fd = fd  # readable when there is a ring to clear or the peer is gone
        self._socket = end = socket.socket(fileno=fd)
        end.setblocking(False)
        self._poll = select.poll()
        self._poll.register(end, select.POLLIN)
        self.peer_gone = False  # nobody holds the other end any more

    @classmethod
    def pair(cls) -> tuple["Doorbell", "Doorbell"]:
        one, other = socket.socketpair()
        return cls(one.detach()), cls(other.detach())

    def ring(self) -> None:
        try:
            self._socket.send(b"\0")
        except BlockingIOError:
            pass
        except (BrokenPipeError, ConnectionResetError):
            self.peer_gone = True

    def clear(self) -> None:
        """Forget the rings so far. Look at the shared memory after this, never before."""
        try:
            while (received := len(self._socket.recv(4096))) == 4096:
                pass
        except BlockingIOError:
            return
        except ConnectionResetError:
            received = 0
        self.peer_gone = self.peer_gone or received == 0

    def wait(self, timeout_s: float | None = None) -> None:
        """Block until the peer rings, has rung since the last `clear`, or is gone."""
        self._poll.poll(None if timeout_s is None else max(0.0, timeout_s) * 1000)

    def close(self) -> None:
        self._socket.close()

    def __getstate__(self) -> Descriptor:
        return Descriptor(self.fd)


class RingEnd:
    """One end of a ring, and of the doorbells between both ends."""

    def __init__(self, ring: Ring, doorbell: Doorbell) -> None:
        self._ring = ring
        self._doorbell = doorbell

    def fileno(self) -> int:
        return self._doorbell.fd

    def close(self) -> None:
        self._ring.close()
        self._doorbell.close()


class RingOutbox(RingEnd, Generic[R]):
    """The writing end of a ring. `fileno` is readable when the reader has made room or is gone."""

    def publish(self, records: Sequence[R]) -> None:
        """Publish all records; block while the ring is full, which does not happen at the sizes the engine chooses."""
        published = self.try_publish(records)
        while published < len(records):
            self._doorbell.wait()
            published += self.try_publish(records[published:])

    def try_publish(self, records: Sequence[R]) -> int:
        """Publish as many records as there is room for, as one batch, without blocking; return how many."""
        self._doorbell.clear()
        if self._doorbell.peer_gone:
            raise PeerGone
        published = 0
        for record in records:
            if not self._ring.write(encode(record)):
                break
            published += 1
        if published:
            self._ring.publish()
            self._doorbell.ring()
        return published

    @property
    def is_read(self) -> bool:
        """Whether the reader has read everything that was published."""
        return not self._ring.used_bytes

    def go_on(self) -> None:
        """Write in place of a process that has died."""
        self._ring.go_on_writing()


class RingInbox(RingEnd, Generic[R]):
    """The reading end of a ring. `fileno` is readable when there may be records to drain or the writer is gone."""

    def drain(self) -> list[R]:
        self._doorbell.clear()
        records: list[R] = []
        while (payload := self._ring.read()) is not None:
            records.append(cast(R, decode(payload)))
        if records:
            self._ring.release()
            self._doorbell.ring()
        elif self._doorbell.peer_gone:
            raise PeerGone
        return records

    @property
    def has_records(self) -> bool:
        """Whether there are records that were published and not drained."""
        return bool(self._ring.used_bytes)

    def has_peer(self) -> bool:
        """Forget the rings so far, and return whether the writer is still there."""
        self._doorbell.clear()
        return not self._doorbell.peer_gone

    def wait(self, timeout_s: float | None = None) -> None:
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._ring.used_bytes:
            if self._doorbell.peer_gone:
                raise PeerGone
            remaining_s = None if deadline_s is None else deadline_s - time.monotonic()
            if remaining_s is not None and remaining_s <= 0:
                return
            self._doorbell.wait(remaining_s)
            self._doorbell.clear()

    def go_on(self) -> None:
        """Read in place of a process that has died."""
        self._ring.go_on_reading()
