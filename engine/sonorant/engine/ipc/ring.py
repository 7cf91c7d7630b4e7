"""A ring of byte records in anonymous shared memory: one process writes, another reads. It does not interpret them.

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

Nothing here waits: see sonorant.engine.ipc.channel.
"""

import platform
import threading
from collections.abc import Sequence

from sonorant.engine.errors import EngineError
from sonorant.engine.ipc.handed import SharedMemory

HEAD_WORD = 0
TAIL_WORD = 8
DATA_OFFSET = 128
ALIGNMENT = 16
RECORD_HEADER_BYTES = 16
WRAP = 2**64 - 1
MACHINES = (("Linux", "x86_64"), ("Linux", "aarch64"))

Buffer = bytes | bytearray | memoryview


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
