"""Records arrive whole and in order through small rings, between real processes too, and a death is noticed."""

import select
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonorant.engine.ipc.channel import PeerGone, QueueChannel
from sonorant.engine.ipc.messages import EndText, FrameRecord, PushText, Record
from sonorant.engine.ipc.ring import Doorbell, Ring, RingInbox, RingOutbox
from tests.engine.ipc.children import EchoPair
from tests.engine.ipc.other_side import other_side
from tests.fakes import frame_batch


class Local:
    """Both ends of a ring in one process, as two mappings."""

    def __init__(self, ring_bytes: int) -> None:
        self.writing = Ring(ring_bytes)
        self.reading = other_side(self.writing)
        self.writing_bell, self.reading_bell = Doorbell.pair()
        self.outbox: RingOutbox[PushText] = RingOutbox(self.writing, self.writing_bell)
        self.inbox: RingInbox[PushText] = RingInbox(self.reading, self.reading_bell)

    def close(self) -> None:
        for end in (self.writing, self.reading, self.writing_bell, self.reading_bell):
            end.close()


@pytest.fixture
def local() -> Iterator[Local]:
    channel = Local(ring_bytes=1024)
    yield channel
    channel.close()


@pytest.fixture
def echo() -> Iterator[EchoPair]:
    pair = EchoPair(ring_bytes=8192)
    yield pair
    pair.close()


def record(n: int, size: int = 1) -> PushText:
    return PushText(n, tuple(range(n, n + size)))


@given(st.lists(st.one_of(st.lists(st.integers(0, 100), max_size=9), st.none()), max_size=40))
def test_any_interleaving_of_batches_and_drains(moves: list[list[int] | None]) -> None:
    channel = Local(ring_bytes=1024)
    sent: list[PushText] = []
    received: list[PushText] = []
    backlog: list[PushText] = []
    for move in [*moves, None]:
        if move is None:
            received += channel.inbox.drain()
        else:
            batch = [record(len(sent) + n, size) for n, size in enumerate(move)]
            sent += batch
            backlog += batch
        del backlog[: channel.outbox.try_publish(backlog)]
    while backlog:
        received += channel.inbox.drain()
        del backlog[: channel.outbox.try_publish(backlog)]
    received += channel.inbox.drain()
    assert received == sent
    assert channel.reading.used_bytes == 0
    channel.close()


def test_publish_waits_for_room_and_the_reader_wakes_it(local: Local) -> None:
    records = [record(n, 20) for n in range(100)]
    thread = threading.Thread(target=local.outbox.publish, args=(records,))
    thread.start()
    received: list[PushText] = []
    while len(received) < len(records):
        local.inbox.wait()
        received += local.inbox.drain()
    thread.join()
    assert received == records


def test_wait_returns_at_once_when_there_is_something_and_in_time_when_not(local: Local) -> None:
    started_s = time.monotonic()
    local.inbox.wait(0.05)
    assert 0.05 <= time.monotonic() - started_s < 2
    local.outbox.publish([record(1)])
    local.inbox.wait()
    assert local.inbox.drain() == [record(1)]
    assert local.inbox.drain() == []


def test_what_a_writer_said_before_it_died_is_read(local: Local) -> None:
    local.outbox.publish([record(1)])
    local.writing_bell.close()
    local.inbox.wait()
    assert local.inbox.drain() == [record(1)]
    with pytest.raises(PeerGone):
        local.inbox.wait()
    with pytest.raises(PeerGone):
        local.inbox.drain()


def test_a_writer_notices_that_its_reader_died(local: Local) -> None:
    local.outbox.publish([record(1)])
    local.reading_bell.close()
    with pytest.raises(PeerGone):
        local.outbox.publish([record(2)])


def test_a_full_ring_and_a_dead_reader_do_not_block(local: Local) -> None:
    assert local.outbox.try_publish([record(n, 40) for n in range(50)]) < 50
    threading.Timer(0.05, local.reading_bell.close).start()
    with pytest.raises(PeerGone):
        local.outbox.publish([record(2, 40)])


def test_an_unread_doorbell_fills_up_without_harm(local: Local) -> None:
    for n in range(3000):  # the outbox's own doorbell is rung at every drain and cleared at every publish
        local.reading_bell.ring()
        local.writing_bell.ring()
        local.outbox.publish([record(n)])
        assert local.inbox.drain() == [record(n)]


def test_between_processes_nothing_is_lost_reordered_repeated_or_torn(echo: EchoPair) -> None:
    rng = np.random.default_rng(0)
    sent: list[FrameRecord] = []
    for n in range(3000):
        rows = int(rng.integers(1, 40))
        codes = rng.integers(-(2**15), 2**15, (rows, 16), np.int16)
        sent.append(frame_batch([n] * rows, range(rows), codes))
    backlog, received = list(sent), []
    poll = select.poll()
    poll.register(echo.inbox.fileno(), select.POLLIN)
    poll.register(echo.outbox.fileno(), select.POLLIN)
    while len(received) < len(sent):
        del backlog[: echo.outbox.try_publish(backlog)]
        poll.poll()
        received += echo.inbox.drain()
    for theirs, ours in zip(received, sent, strict=True):
        for name in ("stream_ids", "frame_indices", "codes"):
            np.testing.assert_array_equal(getattr(theirs, name), getattr(ours, name))


def test_a_killed_process_is_noticed_by_both_its_neighbours(echo: EchoPair) -> None:
    echo.child.kill()
    echo.child.wait()  # its ends are closed one after the other
    with pytest.raises(PeerGone):
        echo.inbox.wait()
    with pytest.raises(PeerGone):
        echo.outbox.publish([EndText(1)])


def test_queue_channel() -> None:
    channel: QueueChannel[Record] = QueueChannel()
    assert channel.drain() == []
    channel.wait(0)
    channel.publish([EndText(1), EndText(2)])
    channel.wait()
    channel.close()
    assert channel.drain() == [EndText(1), EndText(2)]
    with pytest.raises(PeerGone):
        channel.drain()
    with pytest.raises(PeerGone):
        channel.wait()
    with pytest.raises(PeerGone):
        channel.publish([EndText(3)])
