"""The channels of a worker that several server processes share: many rings as one inbox, and one outbox that sorts.

With one server process, workers have its rings themselves.
"""

import select
import time
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import TypeVar

import numpy as np

from sonorant.engine.ipc.channel import PeerGone
from sonorant.engine.ipc.messages import Command, EndServer, PcmBatch, PcmRecord, TextPositions
from sonorant.engine.ipc.ring import RingInbox, RingOutbox
from sonorant.engine.ipc.server_ids import server_of

T = TypeVar("T")
_NOTHING = object()


class SharedInbox:
    """The commands of all server processes. The records of each stay in order; they take turns record by record.

    Raises PeerGone once all server processes are gone. The owner holds the other ends, too, and hands them to the
    replacement of a server process that has died.
    """

    def __init__(self, inboxes: Sequence[RingInbox[Command]]) -> None:
        self._inboxes = inboxes
        self._first = 0  # whose turn it is to be the first
        self._poll: select.poll | None = None  # made in the process that waits
        self._heard: dict[int, RingInbox[Command]]  # by file descriptor, of server processes that are there

    def drain(self) -> list[Command]:
        drained: list[list[Command]] = []
        num_gone = 0
        for inbox in self._inboxes:
            try:
                drained.append(inbox.drain())
            except PeerGone:
                drained.append([])
                num_gone += 1
        if num_gone == len(self._inboxes):
            raise PeerGone
        self._first = (self._first + 1) % len(drained)
        return list(interleaved(drained[self._first :] + drained[: self._first]))

    def wait(self, timeout_s: float | None = None) -> None:
        if self._poll is None:
            self._poll = select.poll()
            self._heard = {inbox.fileno(): inbox for inbox in self._inboxes}
            for fd in self._heard:
                self._poll.register(fd, select.POLLIN)
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while not any(inbox.has_records for inbox in self._inboxes):
            if not self._heard:
                raise PeerGone
            remaining_s = None if deadline_s is None else deadline_s - time.monotonic()
            if remaining_s is not None and remaining_s <= 0:
                return
            for fd, _ in self._poll.poll(None if remaining_s is None else remaining_s * 1000):
                if not self._heard[fd].has_peer():
                    del self._heard[fd]
                    self._poll.unregister(fd)


class SharedOutbox:
    """Publishes each record, or each row of a batch, to the server process of its stream.

    A server process that is gone misses its records. Raises PeerGone once all server processes are gone.
    """

    def __init__(self, outboxes: Sequence[RingOutbox[PcmRecord]]) -> None:
        self._outboxes = outboxes
        self._gone: set[int] = set()

    def publish(self, records: Sequence[PcmRecord]) -> None:
        for server, own in sorted_by_server(records).items():
            try:
                self._outboxes[server].publish(own)
            except PeerGone:
                self._gone.add(server)
        if len(self._gone) == len(self._outboxes):
            raise PeerGone


def interleaved(lists: Sequence[Sequence[T]]) -> Iterator[T]:
    """Yield the first of each list, then the second of each, and so on."""
    for turn in zip_longest(*lists, fillvalue=_NOTHING):
        yield from (each for each in turn if each is not _NOTHING)  # type: ignore[misc]


def sorted_by_server(records: Sequence[PcmRecord]) -> dict[int, list[PcmRecord]]:
    """Return each server process's records, in order. Batches with streams of several server processes are split."""
    sorted_records: dict[int, list[PcmRecord]] = {}
    for record in records:
        match record:
            case PcmBatch() | TextPositions():
                for server, part in _parts(record):
                    sorted_records.setdefault(server, []).append(part)
            case EndServer(server):
                sorted_records.setdefault(server, []).append(record)
            case _:
                sorted_records.setdefault(server_of(record.stream_id), []).append(record)
    return sorted_records


def _parts(batch: PcmBatch | TextPositions) -> Iterator[tuple[int, PcmBatch | TextPositions]]:
    servers = server_of(batch.stream_ids)
    if (servers == servers[0]).all():
        yield int(servers[0]), batch
        return
    for server in np.unique(servers).tolist():
        rows = np.flatnonzero(servers == server)
        if isinstance(batch, TextPositions):
            yield server, TextPositions(batch.stream_ids[rows], batch.frame_indices[rows], batch.positions[rows])
        else:
            samples, codes = np.asarray(batch.samples, np.int16)[rows], np.asarray(batch.codes, np.int16)[rows]
            yield server, PcmBatch(batch.stream_ids[rows], batch.first_frames[rows], batch.num_frames, samples, codes)
