"""A ring of records in anonymous shared memory: one process writes, another reads. `Ring` has bytes, which it does not
interpret; `RingOutbox` and `RingInbox` are the ends of a channel of records.

    byte 0          head: u64, bytes consumed so far; only the reader stores it
    byte 64         tail: u64, bytes published so far; only the writer stores it
    byte 128        data: `capacity_bytes`, a multiple of 16

    data   | length u64 | position u64 | payload, padded to 16 | length | position | ... | WRAP | (unused) |

`head` and `tail` only grow; a position's place in the data is its remainder by the capacity. If head == tail, the ring
is empty; tail - head never exceeds the capacity. A record is contiguous: if it does not fit before the end of the data,
a WRAP word stands there and sends the reader to the beginning. Records carry the position at which they begin, so a
lost, repeated or torn record cannot pass unnoticed.

All that a side needs to know is in the memory. So another process can go on where a dead one stopped: what that had
written and not published is overwritten, and what it had read and not released is read again.

    writer: write() ... write(), publish()    the reader sees all these records from publish() on
    reader: read() ... read(), release()      payloads are views of the ring until release() frees their room

Memory order. The payload is stored before the tail that publishes it, and loaded after that tail; it is loaded before
the head that frees it is stored, and stored after that head was loaded. Head and tail are aligned 64-bit words moved by
one instruction each, and CPython does not reorder. x86-64 keeps stores in order, loads in order, and a load before a
later store; no more is needed. 64-bit Arm guarantees none of these, so there each of the four places has a fence: a
lock that is released and acquired again. POSIX says that both synchronize memory. On Arm they are a store-release and a
load-acquire, which are not reordered: what comes before the pair stays before the release, what comes after it stays
behind the acquire. A doorbell needs no fence: its byte goes through the kernel, whose locks are fences. The engine
refuses to start on other machines.

Doorbells wake the process on the other side of a ring, and show its death. They carry no data.

Each side of a ring holds one end of a socket pair. The writer rings after it has published a batch, the reader after it
has made room. Ringing sends one byte. A process that is woken first clears all bytes and then looks at the shared
memory. If a record is published after that look, its byte is still to come, so no wake-up is lost. If the socket is
full, the peer has unread bytes and will look anyway.

When a process dies the kernel closes its end, and the other end reads end-of-file: hence exactly one process may hold
each end.
"""

import platform
import select
import socket
import threading
import time
from collections.abc import Sequence
from typing import Generic, TypeVar, cast

from sonorant.engine.errors import EngineError
from sonorant.engine.ipc.channel import PeerGone
from sonorant.engine.ipc.handed import Descriptor, SharedMemory
from sonorant.engine.ipc.messages import Record, decode, encode
from sonorant.engine.ipc.opening import Buffer

HEAD_WORD = 0
TAIL_WORD = 8
DATA_OFFSET = 128
ALIGNMENT = 16
RECORD_HEADER_BYTES = 16
WRAP = 2**64 - 1
MACHINES = (("Linux", "x86_64"), ("Linux", "aarch64"))

R = TypeVar("R", bound=Record)


def record_bytes(payload_bytes: int) -> int:
    """Return how many bytes of the ring a record with such a payload takes."""
    return RECORD_HEADER_BYTES - (-payload_bytes // ALIGNMENT) * ALIGNMENT


class Ring(SharedMemory):
    """The shared memory, and this process's position in it. A process either writes or reads."""

    def __init__(self, capacity_bytes: int) -> None:
        if (machine := (platform.system(), platform.machine())) not in MACHINES:
            text = "the engine's shared-memory rings need Linux on x86-64 or 64-bit Arm"
            raise EngineError(f"{text}; this is {' on '.join(machine)}")
        super().__init__(DATA_OFFSET - (-capacity_bytes // ALIGNMENT) * ALIGNMENT)

    def __setstate__(self, fd: int) -> None:
        super().__setstate__(fd)
        self.capacity_bytes = len(self._memory) - DATA_OFFSET
        # The largest payload: a record takes at most half of the ring, so it fits an empty one at any position.
        self.max_payload_bytes = (self.capacity_bytes // 2 - RECORD_HEADER_BYTES) // ALIGNMENT * ALIGNMENT
        self._fence = Fence() if platform.machine() == "aarch64" else None
        # The writer's tail to be, or the reader's head to be. Both sides first attach to an empty ring.
        self._position = self._words[HEAD_WORD]

    def go_on_writing(self) -> None:
        """Become the writer in place of a process that has died."""
        self._position = self._words[TAIL_WORD]

    def go_on_reading(self) -> None:
        """Become the reader in place of a process that has died."""
        self._position = self._words[HEAD_WORD]

    @property
    def used_bytes(self) -> int:
        """Bytes published and not yet released. Exact while the other side does nothing."""
        return self._words[TAIL_WORD] - self._words[HEAD_WORD]

    @property
    def consumed_bytes(self) -> int:
        """Grows as the reader makes progress."""
        return self._words[HEAD_WORD]

    def write(self, parts: Sequence[Buffer]) -> bool:
        """Append a record made of these parts; return False if there is no room for it now."""
        payload_bytes = sum(map(len, parts))
        if payload_bytes > self.max_payload_bytes:
            raise ValueError(f"a record of {payload_bytes} bytes; this ring takes up to {self.max_payload_bytes}")
        size = record_bytes(payload_bytes)
        place = self._position % self.capacity_bytes
        to_end = self.capacity_bytes - place
        wasted = to_end if to_end < size else 0
        if wasted + size > self.capacity_bytes - (self._position - self._words[HEAD_WORD]):
            return False
        if self._fence is not None:
            self._fence()  # the head is loaded before we store into the room that it freed
        if wasted:
            self._words[(DATA_OFFSET + place) // 8] = WRAP
            place = 0
        at = DATA_OFFSET + place
        self._position += wasted
        self._words[at // 8] = payload_bytes
        self._words[at // 8 + 1] = self._position
        at += RECORD_HEADER_BYTES
        for part in parts:
            self._memory[at : at + len(part)] = part
            at += len(part)
        self._position += size
        return True

    def publish(self) -> None:
        if self._fence is not None:
            self._fence()  # the records are stored before the tail that publishes them
        self._words[TAIL_WORD] = self._position

    def read(self) -> memoryview | None:
        """Return the next record's payload, or None if all published records were read."""
        if self._position == self._words[TAIL_WORD]:
            return None
        if self._fence is not None:
            self._fence()  # the tail is loaded before the records that it published
        place = self._position % self.capacity_bytes
        if self._words[(DATA_OFFSET + place) // 8] == WRAP:
            self._position += self.capacity_bytes - place
            place = 0
        at = DATA_OFFSET + place
        payload_bytes = self._words[at // 8]
        if self._words[at // 8 + 1] != self._position:
            raise RuntimeError(f"the ring record at {self._position} is torn or lost: found {self._words[at // 8 + 1]}")
        self._position += record_bytes(payload_bytes)
        return self._memory[at + RECORD_HEADER_BYTES : at + RECORD_HEADER_BYTES + payload_bytes]

    def release(self) -> None:
        """Free the room of everything read so far. Views of it must not be used any more."""
        if self._fence is not None:
            self._fence()  # the records are loaded before we store the head that frees them
        self._words[HEAD_WORD] = self._position


class Fence:
    """A memory fence: loads and stores before the call take effect before those after it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def __call__(self) -> None:
        self._lock.release()
        self._lock.acquire()


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
