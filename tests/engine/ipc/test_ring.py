"""No record is lost, reordered, repeated or torn, whatever the sizes, the interleaving and the reader's lag."""

import itertools
import platform
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sonorant.engine.errors import EngineError
from sonorant.engine.ipc.ring import DATA_OFFSET, HEAD_WORD, TAIL_WORD, Fence, Ring, record_bytes
from tests.engine.ipc.other_side import other_side

CAPACITY_BYTES = 512


class RingAgainstDeque(RuleBasedStateMachine):
    """Writer and reader as two mappings of the same memory, checked against a deque after every move."""

    def __init__(self) -> None:
        super().__init__()
        self.writer = Ring(CAPACITY_BYTES)
        self.reader = other_side(self.writer)
        self.written: deque[bytes] = deque()  # not yet published
        self.published: deque[bytes] = deque()  # not yet read
        self.read: list[tuple[memoryview, bytes]] = []  # not yet released
        self.count = 0

    @rule(size=st.integers(0, 240), num_parts=st.integers(1, 3))
    def write(self, size: int, num_parts: int) -> None:
        payload = bytes((self.count + n) % 251 for n in range(size))
        cuts = [size * n // num_parts for n in range(num_parts + 1)]
        parts = [payload[a:b] for a, b in itertools.pairwise(cuts)]
        before = free_bytes(self.writer)
        if self.writer.write(parts):
            self.written.append(payload)
            self.count += 1
            assert free_bytes(self.writer) <= before - record_bytes(size)
        else:  # refused only when there is no room, a wrap's waste included
            assert free_bytes(self.writer) == before < 2 * record_bytes(size)

    @rule()
    def publish(self) -> None:
        self.writer.publish()
        self.published += self.written
        self.written.clear()

    @precondition(lambda self: self.published)
    @rule()
    def read_one(self) -> None:
        view = self.reader.read()
        assert view is not None
        self.read.append((view, self.published.popleft()))

    @precondition(lambda self: not self.published)
    @rule()
    def read_nothing(self) -> None:
        assert self.reader.read() is None

    @rule()
    def release(self) -> None:
        self.read.clear()
        self.reader.release()

    @invariant()
    def what_was_read_stays_whole_until_released(self) -> None:
        for view, payload in self.read:
            assert view == payload

    def teardown(self) -> None:
        self.publish()
        while self.published:
            self.read_one()
            self.what_was_read_stays_whole_until_released()
        self.release()
        assert self.reader.used_bytes == 0
        assert free_bytes(self.writer) == self.writer.capacity_bytes  # idle: everything is given back
        self.writer.close()
        self.reader.close()


TestRingAgainstDeque = RingAgainstDeque.TestCase


@given(st.lists(st.integers(0, 64), max_size=60))
def test_the_largest_record_fits_an_empty_ring_wherever_it_begins(sizes: list[int]) -> None:
    ring = Ring(CAPACITY_BYTES)
    for size in [*sizes, ring.max_payload_bytes]:
        assert ring.write([bytes(size)])
        ring.publish()
        _drain_other_side(ring)
    ring.close()


def test_a_record_that_can_never_fit_is_refused_loudly() -> None:
    ring = Ring(CAPACITY_BYTES)
    with pytest.raises(ValueError, match="takes up to 240"):
        ring.write([bytes(ring.max_payload_bytes + 1)])
    ring.close()


def test_a_lost_record_is_noticed() -> None:
    writer = Ring(CAPACITY_BYTES)
    reader = other_side(writer)
    writer.write([b"one"])
    lost = writer._position
    writer.write([b"two"])
    writer._words[(DATA_OFFSET + lost) // 8 + 1] += 1
    writer.publish()
    assert reader.read() == b"one"
    with pytest.raises(RuntimeError, match=f"record at {lost} is torn or lost"):
        reader.read()
    writer.close()
    reader.close()


@given(st.lists(st.tuples(st.integers(0, 64), st.booleans(), st.booleans()), max_size=40))
def test_others_go_on_where_a_dead_writer_or_reader_stopped(turns: list[tuple[int, bool, bool]]) -> None:
    """Records that were published and not released are read once more, and no others are."""
    ring = Ring(CAPACITY_BYTES)
    reader = other_side(ring)
    unread: deque[bytes] = deque()
    for number, (size, writer_dies, reader_dies) in enumerate(turns):
        payload = bytes([number]) * size
        if not ring.write([payload]):
            while (view := reader.read()) is not None:
                assert view == unread.popleft()
            reader.release()
            assert not unread and ring.write([payload])
        if writer_dies:
            ring.go_on_writing()
        else:
            ring.publish()
            unread.append(payload)
        if reader_dies:
            for expected in unread:
                assert reader.read() == expected
            reader.go_on_reading()
    for expected in unread:
        assert reader.read() == expected
    assert reader.read() is None
    ring.close()
    reader.close()


def test_other_machines_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(EngineError, match="x86-64 or 64-bit Arm"):
        Ring(CAPACITY_BYTES)


class Tape:
    """Replaces a ring's words, memory and fence, and records in which order they are used."""

    def __init__(self, ring: Ring) -> None:
        self.seen: list[str] = []
        for name in ("_words", "_memory"):
            setattr(ring, name, _Taped(getattr(ring, name), name, self.seen))
        ring._fence = lambda: self.seen.append("fence")  # type: ignore[assignment]


class _Taped:
    def __init__(self, view: memoryview, name: str, seen: list[str]) -> None:
        self._view, self._name, self._seen = view, name, seen

    def _say(self, verb: str, index: object) -> None:
        end = {HEAD_WORD: "head", TAIL_WORD: "tail"}.get(index) if self._name == "_words" else None  # type: ignore[call-overload]
        self._seen.append(f"{verb} {end or 'data'}")

    def __getitem__(self, index: object) -> object:
        self._say("load", index)
        return self._view[index]  # type: ignore[index]

    def __setitem__(self, index: object, value: object) -> None:
        self._say("store", index)
        self._view[index] = value  # type: ignore[index]

    def __len__(self) -> int:
        return len(self._view)

    def release(self) -> None:
        self._view.release()


def test_a_fence_stands_wherever_arm_could_reorder() -> None:
    """There is a fence between accesses to data and to head or tail, on both sides and in both directions."""
    writer = Ring(CAPACITY_BYTES)
    reader = other_side(writer)
    writing, reading = Tape(writer), Tape(reader)
    for size in (0, 40, 100) * 8:  # around the ring, so with wraps
        assert writer.write([bytes(size)])
        writer.publish()
        assert len(reader.read() or b"") == size
        reader.release()
    for tape, before, behind in ((writing, "head", "tail"), (reading, "tail", "head")):
        since = ""  # what was touched last of head, tail and data, if no fence was since
        for seen in tape.seen:
            kind = seen.split()[-1]
            if kind == "data":
                assert since != before, tape.seen
            elif kind == behind and seen.startswith("store"):
                assert since != "data", tape.seen
            since = "" if kind == "fence" else kind
        assert tape.seen.count("fence") == 2 * 24
    writer.close()
    reader.close()


def test_a_fence_leaves_its_lock_taken() -> None:
    fence = Fence()
    for _ in range(3):
        fence()
    assert fence._lock.locked()


def free_bytes(ring: Ring) -> int:
    """The writer's room for records, some of which a wrap may waste."""
    return ring.capacity_bytes - (ring._position - ring._words[HEAD_WORD])


def _drain_other_side(ring: Ring) -> None:
    """Free everything, as a reader that keeps up would."""
    ring._words[HEAD_WORD] = ring._words[TAIL_WORD]
