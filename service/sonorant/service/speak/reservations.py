"""Places in the engine. An utterance that has begun keeps its place between two of its streams.

Each sentence and each flush has its own stream. If the place were not kept, a begun utterance would compete with new
ones at each of them, and break off in the middle when the engine is full. Also, a caller with many utterances leaves
some places to callers with few. The engine does the same with slots and KV pages.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from sonorant.engine import EngineOverloaded, EnginePool, EngineStream, Int16Array, SynthesisParams
from sonorant.service.speak.place_queue import PlaceQueue, Rank, Ticket
from sonorant.service.speak.scheduling import AT_ONCE, Scheduling

FOR_OTHERS = 8  # one place in 8; a smaller share than of sessions, as a free place is speech not made


@dataclass(frozen=True, slots=True)
class Reservations:
    """The places of all utterances of this server, seen by one caller."""

    engine: EnginePool
    num_callers: Callable[[], int] = lambda: 1  # see `Permits`
    num_kept: Counter[str] = field(default_factory=Counter)  # kept places by checkpoint: the next stream is not open
    num_open: Counter[str] = field(default_factory=Counter)  # utterances with a place, by caller
    queue: PlaceQueue = field(default_factory=PlaceQueue)
    caller: str = ""  # see `Caller.limit_key`; "" may take all places

    def of(self, caller: str) -> "Reservations":
        return replace(self, caller=caller)

    @property
    def caller_id(self) -> int:
        """The caller's id for the engine; 0 if callers are not told apart."""
        return _caller_id(self.caller) if self.caller and self.num_callers() > 1 else 0

    def keep(self, checkpoint: str, change: int) -> None:
        """Keep so many more places, for new utterances of this process and of all others."""
        self.num_kept[checkpoint] += change
        self.engine.keep_places(checkpoint, change)

    @property
    def has_many(self) -> bool:
        """Whether this caller has as many places as all would have with the same number, or more."""
        share = max(1, self.engine.info.max_streams // self.num_callers())
        return bool(self.caller) and self.num_callers() > 1 and self.num_open[self.caller] >= share

    def uncount(self) -> None:
        """Note that this caller has one place less."""
        self.num_open[self.caller] -= 1
        if not self.num_open[self.caller]:
            del self.num_open[self.caller]  # so that names of old callers do not pile up

    def spare(self, checkpoint: str, *, is_batch: bool) -> int:
        """Return how many places an utterance of this caller that has none yet must leave free."""
        for_others = self.engine.info.max_streams // FOR_OTHERS if self.has_many or is_batch else 0
        return self.num_kept[checkpoint] + for_others


class Reservation:
    """The place of one utterance, from its first stream until it is given up."""

    def __init__(
        self,
        reservations: Reservations,
        *,
        resumed: bool = False,
        follows: bool = False,
        scheduling: Scheduling = AT_ONCE,
    ) -> None:
        """`resumed`: begun by another session, so it goes ahead of new utterances; as anyone can say so, not where its
        caller has many. `follows`: its session had others before, so it goes ahead in the same way. Both wait for
        workers that are being replaced.
        """
        self._all = reservations
        self._resumed = resumed
        self._follows = follows
        self._is_batch = scheduling.is_batch
        self._ticket: Ticket | None = None  # while it waits for a place
        self._is_open = False
        self._stream: EngineStream | None = None  # the latest stream, until it ends
        self._kept_at: str | None = None  # the checkpoint at which a place is kept

    def open(self, params: SynthesisParams, credit_frames: int, known_codes: Int16Array | None = None) -> EngineStream:
        """Open a stream. Raises EngineUnavailable, what `check` raises, and for the first stream EngineOverloaded."""
        is_kept = self._kept_at is not None
        num_ahead = 0 if is_kept or self._ticket is not None else self._num_ahead
        try:
            stream = self._all.engine.open(
                params,
                credit_frames,
                known_codes,
                spare=0 if is_kept else self._all.spare(params.checkpoint, is_batch=self._is_batch) + num_ahead,
                waits=self._follows or self._resumed or is_kept,
                caller=self._all.caller_id,
                in_turn=self._resumed and not is_kept and self._all.has_many,
                batch=self._is_batch,
            )
        except EngineOverloaded as error:
            error.retry_s = self._expected_wait_s(num_ahead)
            raise
        if self._ticket is not None:
            self._all.queue.served(self._ticket)
        self.give_up()
        self._is_open = True
        self._all.num_open[self._all.caller] += 1
        self._stream = stream
        stream.when_ended = lambda: self._keep(params.checkpoint)
        return stream

    @contextmanager
    def waiting(self) -> Iterator[Ticket]:
        """Wait in the queue for a place inside the block. `open` may be tried when the ticket says so."""
        with self._all.queue.ticket(self._rank, self._all.caller, lambda: self._all.has_many) as self._ticket:
            try:
                yield self._ticket
            finally:
                self._ticket = None

    def position(self, ticket: Ticket) -> tuple[int, float]:
        """Return how many go ahead of it, and how many seconds it will probably wait."""
        num_ahead = self._all.queue.num_ahead(ticket)
        return num_ahead, self._expected_wait_s(num_ahead)

    @property
    def _num_ahead(self) -> int:
        """How many of those that wait go ahead of this one, which does not wait."""
        return self._all.queue.num_ahead_of_newcomer(self._rank, self._all.caller, lambda: self._all.has_many)

    @property
    def _rank(self) -> Rank:
        if self._is_batch:
            return Rank.BATCH
        return Rank.GOES_ON if (self._resumed or self._follows) and not self._all.has_many else Rank.NEW

    def _expected_wait_s(self, num_ahead: int) -> float:
        return self._all.queue.expected_wait_s(num_ahead, self._all.engine.info.max_streams)

    def give_up(self) -> None:
        stream, self._stream = self._stream, None
        if self._kept_at is not None:
            self._all.keep(self._kept_at, -1)
            self._kept_at = None
        if self._is_open:
            self._is_open = False
            if stream is None:
                self._all.uncount()
            else:  # a cancelled stream takes its place until the workers have ended it
                stream.when_ended = self._all.uncount

    def pass_on(self, other: "Reservation") -> None:
        """Give the place that is kept here to another utterance of the session, which has none yet."""
        if self._kept_at is not None and not other._is_open and other._kept_at is None:
            self._kept_at, other._kept_at = None, self._kept_at

    def _keep(self, checkpoint: str) -> None:
        self._stream, self._kept_at = None, checkpoint
        self._all.keep(checkpoint, +1)


def _caller_id(caller: str) -> int:
    """Return the same id in all processes, as the talker treats the streams of one caller alike wherever they come
    from."""
    return int.from_bytes(blake2b(caller.encode(), digest_size=7).digest())
