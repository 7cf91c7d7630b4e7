"""The channels of workers that several server processes share: what each sends stays in order, each gets its own."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonorant.engine.ipc.channel import PeerGone
from sonorant.engine.ipc.messages import (
    Command,
    EndServer,
    EndStream,
    GrantCredit,
    PcmBatch,
    PcmRecord,
    SilentStream,
    TextPositions,
)
from sonorant.engine.ipc.ring import Doorbell, Ring, RingInbox, RingOutbox
from sonorant.engine.ipc.server_ids import GENERATIONS, MAX_SERVERS, new_ids, server_of
from sonorant.engine.ipc.shared_channels import SharedInbox, SharedOutbox, interleaved, sorted_by_server
from sonorant.engine.types import FinishReason, StreamEnd
from tests.engine.ipc.other_side import other_side


@given(st.lists(st.lists(st.integers()), min_size=1, max_size=4))
def test_servers_take_turns_and_each_stays_in_order(lists: list[list[int]]) -> None:
    numbered = [[(server, place, value) for place, value in enumerate(each)] for server, each in enumerate(lists)]
    merged = list(interleaved(numbered))
    assert sorted(merged) == sorted(item for each in numbered for item in each)
    for server, each in enumerate(numbered):
        assert [item for item in merged if item[0] == server] == each
    assert [place for _, place, _ in merged] == sorted(place for _, place, _ in merged), "nobody goes ahead"


@given(st.integers(0, MAX_SERVERS - 1), st.integers(0, 3 * GENERATIONS))
def test_an_id_says_its_server(server: int, generation: int) -> None:
    ids = new_ids(server, generation)
    one, other = next(ids), next(ids)
    assert other == one + 1 and 0 < one < 2**63
    assert server_of(one) == server
    assert (server_of(np.array([one, other])) == server).all()
    assert next(new_ids(server, generation + 1)) != one


def test_one_server_alone_counts_from_one() -> None:
    assert next(new_ids()) == 1


batches = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), max_size=5)


@given(batches, st.booleans())
def test_every_row_comes_to_its_server_in_order(batches: list[list[int]], is_positions: bool) -> None:
    """Row k of all batches has the number k in all its fields."""
    records: list[PcmRecord] = []
    count = 0
    for servers in batches:
        ids = np.array([(server << 56) + 1 for server in servers], np.int64)
        numbers = np.arange(count, count + len(servers), dtype=np.int32)
        count += len(servers)
        if is_positions:
            records.append(TextPositions(ids, numbers, numbers.astype(np.float32)))
        else:
            rows = numbers.astype(np.int16)
            records.append(PcmBatch(ids, numbers, 1, np.tile(rows[:, None], 8), rows[:, None, None]))
        records.append(SilentStream(int(ids[0]), count))
        records.append(EndStream(int(ids[-1]), StreamEnd(FinishReason.COMPLETED, count, 0.0, 0.0)))
    seen = 0
    for server, own in sorted_by_server(records).items():
        before = -1
        for record in own:
            if isinstance(record, SilentStream | EndStream):
                assert server_of(record.stream_id) == server
                continue
            assert isinstance(record, PcmBatch | TextPositions)
            assert (server_of(record.stream_ids) == server).all()
            indices = record.frame_indices if isinstance(record, TextPositions) else record.first_frames
            assert (np.diff(np.concatenate([[before], indices])) > 0).all()
            before = int(indices[-1])
            seen += len(indices)
            if isinstance(record, PcmBatch):
                assert (np.asarray(record.samples) == indices[:, None]).all()
                assert (np.asarray(record.codes)[:, 0, 0] == indices).all()
    assert seen == count
    others = [record for own in sorted_by_server(records).values() for record in own if hasattr(record, "stream_id")]
    assert len(others) == 2 * len(batches)


def test_a_batch_of_one_server_is_not_copied() -> None:
    batch = PcmBatch(
        np.full(2, 3 << 56), np.zeros(2, np.int32), 1, np.zeros((2, 8), np.int16), np.zeros((2, 1, 1), np.int16)
    )
    assert sorted_by_server([batch, EndServer(3)]) == {3: [batch, EndServer(3)]}


class Line:
    """One direction between a server process and a worker, both in this process."""

    def __init__(self, stack: ExitStack) -> None:
        self.ring = stack.enter_context(closing(Ring(4096)))
        one, other = Doorbell.pair()
        self.bells = stack.enter_context(closing(one)), stack.enter_context(closing(other))
        self.other_side = stack.enter_context(closing(other_side(self.ring)))


@pytest.fixture
def lines() -> Iterator[list[Line]]:
    with ExitStack() as stack:
        yield [Line(stack) for _ in range(2)]


def inbox_of(lines: list[Line]) -> tuple[SharedInbox, list[RingOutbox[Command]]]:
    outboxes = [RingOutbox[Command](line.ring, line.bells[0]) for line in lines]
    return SharedInbox([RingInbox(line.other_side, line.bells[1]) for line in lines]), outboxes


def test_an_inbox_wakes_for_any_server(lines: list[Line]) -> None:
    inbox, outboxes = inbox_of(lines)
    began_s = time.monotonic()
    inbox.wait(0.05)
    assert time.monotonic() - began_s >= 0.05 and inbox.drain() == []
    for outbox in outboxes:
        later = threading.Timer(0.05, outbox.publish, [[GrantCredit(1, 2)]])
        later.start()
        inbox.wait(10)
        later.join()
        assert inbox.drain() == [GrantCredit(1, 2)]


def test_the_first_turn_goes_round(lines: list[Line]) -> None:
    inbox, outboxes = inbox_of(lines)
    firsts = []
    for _ in range(4):
        for number, outbox in enumerate(outboxes):
            outbox.publish([GrantCredit(number, 1), GrantCredit(number, 2)])
        drained = inbox.drain()
        assert sorted(record.num_frames for record in drained[:2]) == [1, 1]  # type: ignore[union-attr]
        firsts.append(drained[0].stream_id)  # type: ignore[union-attr]
    assert firsts in ([0, 1, 0, 1], [1, 0, 1, 0])


def test_a_worker_is_alone_when_all_servers_are_gone_and_not_before(lines: list[Line]) -> None:
    inbox, outboxes = inbox_of(lines)
    outboxes[1].publish([GrantCredit(1, 2)])
    lines[0].bells[0].close()
    inbox.wait(10)
    assert inbox.drain() == [GrantCredit(1, 2)]
    began_s = time.process_time()
    inbox.wait(0.3)
    assert time.process_time() - began_s < 0.1, "a server process that is gone keeps nobody busy"
    outboxes[1].publish([GrantCredit(1, 3)])
    lines[1].bells[0].close()
    inbox.wait(10)
    assert inbox.drain() == [GrantCredit(1, 3)], "what was sent before still counts"
    with pytest.raises(PeerGone):
        inbox.wait(10)
    with pytest.raises(PeerGone):
        inbox.drain()


def test_an_outbox_reaches_those_that_are_there(lines: list[Line]) -> None:
    outbox = SharedOutbox([RingOutbox(line.ring, line.bells[0]) for line in lines])
    inbox = RingInbox[PcmRecord](lines[1].other_side, lines[1].bells[1])
    lines[0].bells[1].close()
    records = [EndServer(0), EndServer(1)]
    outbox.publish(records)
    assert inbox.drain() == [EndServer(1)]
    lines[1].bells[1].close()
    outbox.publish(records)  # rings into the void
    with pytest.raises(PeerGone):
        outbox.publish(records)
