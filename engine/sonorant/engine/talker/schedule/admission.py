"""Decides which streams get slots and pages, and which ones give theirs up for others. Pure; the clock is an argument.

* Interactive streams come first. Of these, those that go on behind frames made before come before all others, as
  somebody is listening to them. For the others, callers take turns.
* A stream that waits for pages holds up those behind it, or else it might wait forever.
* Background streams have what is left, up to a number of slots. They take turns by callers, too, whether they go on
  behind frames or not. Where an interactive stream lacks a slot or pages, background streams give up theirs.
* A stream that has had no text for a while lends its slot to one that waits; an interactive one not to a background
  stream.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from sonorant.engine.talker.schedule.memory.capacity import Capacity
from sonorant.engine.talker.schedule.memory.pages import NO_LEASES
from sonorant.engine.talker.schedule.stream import NO_SLOT, TalkerStream
from sonorant.engine.talker.schedule.waiting import BACKGROUND, INTERACTIVE, StreamRank, WaitingStreams

LENDS_AFTER_S = 1.0  # without text; long enough that a stream fed word by word keeps its slot between two words
# A background stream that gives way is prefilled again, and with so many a GPU is busy.
MOST_BACKGROUND_STREAMS, MOST_BACKGROUND_STREAMS_ON_CPU = 64, 4
# A step with so many rows takes hardly longer than one with few; on the CPU each row takes its time.
MOST_ROWS_WITH_BACKGROUND, MOST_ROWS_WITH_BACKGROUND_ON_CPU = 256, 0


@dataclass(frozen=True, slots=True)
class BackgroundLimits:
    """How much background streams may have. Nobody listens to them, so they must not make others wait."""

    most_streams: int  # that have slots
    most_rows: int  # of a step with interactive and background rows

    @classmethod
    def of(cls, num_slots: int, *, on_cuda: bool) -> "BackgroundLimits":
        most_streams = MOST_BACKGROUND_STREAMS if on_cuda else MOST_BACKGROUND_STREAMS_ON_CPU
        most_rows = MOST_ROWS_WITH_BACKGROUND if on_cuda else MOST_ROWS_WITH_BACKGROUND_ON_CPU
        return cls(max(1, min(most_streams, num_slots // 2)), most_rows)


ONE_STREAM = BackgroundLimits(most_streams=1, most_rows=0)


class Admission:
    """Knows the streams that wait, and of those with slots which ones are background streams or have no text."""

    def __init__(self, capacity: Capacity, num_slots: int, num_pages: int, most_background: int) -> None:
        self._capacity = capacity
        self._waiting = WaitingStreams(num_slots, num_pages, most_background)
        self._most_background = most_background
        self._background: dict[int, TalkerStream] = {}  # those with slots; the one that began first is the first
        self._starved: dict[int, TalkerStream] = {}  # the one that starved first is the first
        self.wait_s: float | None = None  # how long no stream will lend a slot; None if none waits for that

    def add(self, stream: TalkerStream) -> None:
        """Let a stream wait for a slot."""
        self._waiting.add(stream)

    def admit(self) -> TalkerStream | None:
        """Give the stream whose turn it is a slot and pages, and return it; None if no stream can have them now."""
        if not self._waiting:
            return None
        stream = self._first(self._capacity.num_free_slots, self._capacity.num_free_pages)
        if stream is None and self._num_background_left and self._waiting.any_of(BACKGROUND):
            stream = self._first_of_background() if self._wanting() is None else None
        if stream is None or not self._capacity.admit(stream):
            return None
        self._waiting.admit(stream)
        if stream.is_background:
            self._background[stream.stream_id] = stream
        return stream

    def who_yields(self, now_s: float) -> TalkerStream | None:
        """Return a stream that must end as YIELDED, so that `admit` may find room; None if none has to."""
        self.wait_s = None
        if not self._waiting:
            return None
        if self._waiting.any_of(INTERACTIVE):
            # A caller that leaves what is free to others can still use what its own streams lend.
            if (stream := self._wanting()) is None:
                callers = self._waiting.callers(StreamRank.NEW)
                lender = self._lender(now_s, lambda each: not each.is_background and each.request.caller in callers)
            elif self._background and self._fits_without_background(stream):
                return self.last_of_background()
            else:
                return self._lender(now_s, lambda each: True)
            if lender is not None:
                return lender
        if not self._waiting.any_of(BACKGROUND):
            return None
        callers, is_heavy = self._waiting.callers(StreamRank.BACKGROUND), self._first_of_background() is None
        return self._lender(now_s, lambda each: each.is_background and (not is_heavy or each.request.caller in callers))

    @property
    def _num_background_left(self) -> int:
        return self._most_background - len(self._background)

    def _first_of_background(self) -> TalkerStream | None:
        capacity = self._capacity
        num_free_slots = min(capacity.num_free_slots, self._num_background_left)
        return self._waiting.first(BACKGROUND, num_free_slots, capacity.num_free_pages, capacity.num_new_pages)

    def last_of_background(self) -> TalkerStream | None:
        """Return the background stream that gives way first: with the fewest frames to be prefilled again."""
        return min(reversed(self._background.values()), key=lambda stream: stream.num_frames, default=None)

    def _lender(self, now_s: float, may_lend: Callable[[TalkerStream], bool]) -> TalkerStream | None:
        """Return the stream that has been without text for the longest, of those that may lend, if it is time."""
        for stream in filter(may_lend, self._starved.values()):
            wait_s = stream.starved_s + LENDS_AFTER_S - now_s
            if wait_s <= 0:
                return stream
            self.wait_s = wait_s if self.wait_s is None else min(wait_s, self.wait_s)
            break
        return None

    # These decide as if no background stream had a slot. So their answers do not depend on which streams have one, and
    # no background stream begins and yields in turn while an interactive stream waits.

    def _wanting(self) -> TalkerStream | None:
        """Return the interactive stream for which background streams must leave what is free."""
        if not self._waiting.any_of(INTERACTIVE):
            return None
        capacity, leases = self._capacity, self._background_leases()
        return self._first(
            capacity.num_free_slots + len(self._background), capacity.num_free_pages_without(leases), without=leases
        )

    def _fits_without_background(self, stream: TalkerStream) -> bool:
        leases = self._background_leases()
        return self._capacity.num_new_pages(stream, leases) <= self._capacity.num_free_pages_without(leases)

    def _background_leases(self) -> Mapping[int, int]:
        """How many background streams have each page."""
        return Counter(page for stream in self._background.values() for page in stream.pages)

    def _first(
        self, num_free_slots: int, num_free_pages: int, without: Mapping[int, int] = NO_LEASES
    ) -> TalkerStream | None:
        """Return the interactive stream whose turn it is when so much is free, `without` these leases."""
        return self._waiting.first(
            INTERACTIVE, num_free_slots, num_free_pages, lambda stream: self._capacity.num_new_pages(stream, without)
        )

    # What becomes of streams

    def grew(self, stream: TalkerStream, pages: Sequence[int]) -> None:
        """Note that an admitted stream was given more pages."""
        self._waiting.grew(stream, pages)

    def starves(self, stream: TalkerStream, now_s: float) -> None:
        """Note that a stream with a slot has no text any more."""
        stream.starved_s = now_s
        self._starved[stream.stream_id] = stream

    def starves_no_more(self, stream: TalkerStream) -> None:
        self._starved.pop(stream.stream_id, None)

    def remove(self, stream: TalkerStream) -> None:
        """Forget a stream that has ended, waiting or not. What it had is free again."""
        self._background.pop(stream.stream_id, None)
        self._starved.pop(stream.stream_id, None)
        if stream.slot == NO_SLOT:
            self._waiting.remove(stream)
        else:
            self._waiting.release(stream)

    def check_conservation(self, streams: Collection[TalkerStream]) -> None:
        """Raise RuntimeError unless what is noted for callers and background streams is what the streams hold."""
        self._waiting.check_conservation(streams)
        background = {stream.stream_id for stream in streams if stream.is_background and stream.slot != NO_SLOT}
        if background != self._background.keys():
            raise RuntimeError("the background streams noted as having slots are not those that have some")
