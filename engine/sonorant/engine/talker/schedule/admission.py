"""Decides which streams get slots and pages, and which ones give theirs up for others. Pure; the clock is an argument.

* Interactive streams come first. Of these, those that go on behind frames made before come before all others, as
  somebody is listening to them. For the others, callers take turns.
* A stream that waits for pages holds up those behind it, or else it might wait forever.
* Batch streams have what is left, up to a number of slots. They take turns by callers, too, whether they go on behind
  frames or not. Where an interactive stream lacks a slot or pages, batch streams give up theirs.
* A stream that has had no text for a while lends its slot to one that waits; an interactive one not to a batch stream.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from sonorant.engine.talker.schedule.capacity import Capacity
from sonorant.engine.talker.schedule.pages import NO_LEASES
from sonorant.engine.talker.schedule.stream import NO_SLOT, Stream
from sonorant.engine.talker.schedule.waiting import WaitingStreams

LENDS_AFTER_S = 1.0  # without text; long enough that a stream fed word by word keeps its slot between two words


class Admission:
    """Knows the streams that wait, and of those with slots which ones are batch streams or have no text."""

    def __init__(self, capacity: Capacity, num_slots: int, num_pages: int, most_batch_streams: int) -> None:
        self._capacity = capacity
        self._returning: dict[int, Stream] = {}  # a dict, for cheap removal from the middle
        self._waiting = WaitingStreams(num_slots, num_pages)
        self._batch_waiting = WaitingStreams(most_batch_streams, num_pages)
        self._most_batch_streams = most_batch_streams
        self._batch: dict[int, Stream] = {}  # those with slots; the one that began first is the first
        self._starved: dict[int, Stream] = {}  # the one that starved first is the first
        self.wait_s: float | None = None  # how long nobody will lend a slot; None if nobody waits for that

    def add(self, stream: Stream) -> None:
        """Let a stream wait for a slot."""
        if stream.first_frame and not (stream.request.in_turn or stream.is_batch):
            self._returning[stream.stream_id] = stream
        else:
            self._waiting_for(stream).add(stream)

    def admit(self) -> Stream | None:
        """Give the stream whose turn it is a slot and pages, and return it; None if nobody can have them now."""
        capacity = self._capacity
        stream = self._first(capacity.num_free_slots, capacity.num_free_pages)
        if stream is not None and capacity.admit(stream):
            self._returning.pop(stream.stream_id, None)
            self._waiting.admit(stream)
            return stream
        if not self._batch_waiting or self._num_batch_left == 0 or self._wanting() is not None:
            return None
        stream = self._first_of_batch()
        if stream is None or not capacity.admit(stream):
            return None
        self._batch_waiting.admit(stream)
        self._batch[stream.stream_id] = stream
        return stream

    def who_yields(self, now_s: float) -> Stream | None:
        """Return a stream that must end as YIELDED, so that `admit` may find room; None if nobody has to."""
        self.wait_s = None
        if self._returning or self._waiting:
            if (stream := self._wanting()) is None:  # who leaves what is free to others can still use its own
                callers = self._waiting.callers
                lender = self._lender(now_s, lambda each: not each.is_batch and each.request.caller in callers)
            elif self._batch and self._fits_without_batch(stream):
                return self.last_of_batch()
            else:
                return self._lender(now_s, lambda each: True)
            if lender is not None:
                return lender
        if not self._batch_waiting:
            return None
        callers, is_heavy = self._batch_waiting.callers, self._first_of_batch() is None
        return self._lender(now_s, lambda each: each.is_batch and (not is_heavy or each.request.caller in callers))

    @property
    def _num_batch_left(self) -> int:
        return self._most_batch_streams - len(self._batch)

    def _first_of_batch(self) -> Stream | None:
        capacity = self._capacity
        num_free_slots = min(capacity.num_free_slots, self._num_batch_left)
        return self._batch_waiting.first(num_free_slots, capacity.num_free_pages, capacity.num_new_pages)

    def last_of_batch(self) -> Stream | None:
        """Return the batch stream that gives way before the others: with the fewest frames to be prefilled again."""
        return min(reversed(self._batch.values()), key=lambda stream: stream.num_frames, default=None)

    def _lender(self, now_s: float, may_lend: Callable[[Stream], bool]) -> Stream | None:
        """Return the stream that has been without text for the longest, of those that may lend, if it is time."""
        for stream in filter(may_lend, self._starved.values()):
            wait_s = stream.starved_s + LENDS_AFTER_S - now_s
            if wait_s <= 0:
                return stream
            self.wait_s = wait_s if self.wait_s is None else min(wait_s, self.wait_s)
            break
        return None

    # As if no batch stream had a slot. The answers are the same whoever of them has one, so none begins and yields in
    # turn while an interactive stream waits.

    def _wanting(self) -> Stream | None:
        """Return the interactive stream for which batch streams must leave what is free."""
        if not (self._returning or self._waiting):
            return None
        capacity, leases = self._capacity, self._batch_leases()
        return self._first(
            capacity.num_free_slots + len(self._batch), capacity.num_free_pages_without(leases), without=leases
        )

    def _fits_without_batch(self, stream: Stream) -> bool:
        leases = self._batch_leases()
        return self._capacity.num_new_pages(stream, leases) <= self._capacity.num_free_pages_without(leases)

    def _batch_leases(self) -> Mapping[int, int]:
        """How many batch streams have each page."""
        return Counter(page for stream in self._batch.values() for page in stream.pages)

    def _first(self, num_free_slots: int, num_free_pages: int, without: Mapping[int, int] = NO_LEASES) -> Stream | None:
        """Return the interactive stream whose turn it is when so much is free, `without` these leases."""
        return next(iter(self._returning.values()), None) or self._waiting.first(
            num_free_slots, num_free_pages, lambda stream: self._capacity.num_new_pages(stream, without)
        )

    # What becomes of streams

    def grew(self, stream: Stream, pages: Sequence[int]) -> None:
        """Note that an admitted stream was given more pages."""
        self._waiting_for(stream).grew(stream, pages)

    def starves(self, stream: Stream, now_s: float) -> None:
        """Note that a stream with a slot has no text any more."""
        stream.starved_s = now_s
        self._starved[stream.stream_id] = stream

    def starves_no_more(self, stream: Stream) -> None:
        self._starved.pop(stream.stream_id, None)

    def remove(self, stream: Stream) -> None:
        """Forget a stream that has ended, waiting or not. What it had is free again."""
        for group in (self._returning, self._batch, self._starved):
            group.pop(stream.stream_id, None)
        if stream.slot == NO_SLOT:
            self._waiting_for(stream).remove(stream)
        else:
            self._waiting_for(stream).release(stream)

    def _waiting_for(self, stream: Stream) -> WaitingStreams:
        return self._batch_waiting if stream.is_batch else self._waiting

    def check_conservation(self, streams: Iterable[Stream]) -> None:
        """Raise RuntimeError unless what is noted for callers and batch streams is what the open streams hold."""
        streams = list(streams)
        self._waiting.check_conservation(stream for stream in streams if not stream.is_batch)
        self._batch_waiting.check_conservation(stream for stream in streams if stream.is_batch)
        batch = {stream.stream_id for stream in streams if stream.is_batch and stream.slot != NO_SLOT}
        if batch != self._batch.keys():
            raise RuntimeError("the batch streams noted as having slots are not those that have some")
