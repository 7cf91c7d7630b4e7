"""Places in the engine. An utterance that has begun keeps its place between two of its streams.

Each sentence and each flush has its own stream. If the place were not kept, a begun utterance would compete with new
ones at each of them, and break off in the middle when the engine is full. Also, a caller with many utterances leaves
some places to callers with few. The engine does the same with slots and KV pages.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b

from sonorant.engine import EnginePool, EngineStream, Int16Array, SynthesisParams

FOR_OTHERS = 8  # one place in 8; a smaller share than of sessions, as a free place is speech not made


@dataclass(frozen=True, slots=True)
class Reservations:
    """The places of all utterances of this server, seen by one caller."""

    engine: EnginePool
    num_callers: Callable[[], int] = lambda: 1  # see `Places`
    num_kept: Counter[str] = field(default_factory=Counter)  # kept places by checkpoint: the next stream is not open
    num_open: Counter[str] = field(default_factory=Counter)  # utterances with a place, by caller
    caller: str = ""  # see `Caller.limit_key`; "" may take all places

    def of(self, caller: str) -> "Reservations":
        return Reservations(self.engine, self.num_callers, self.num_kept, self.num_open, caller)

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

    def spare(self, checkpoint: str) -> int:
        """Return how many places an utterance of this caller that has none yet must leave free."""
        return self.num_kept[checkpoint] + (self.engine.info.max_streams // FOR_OTHERS if self.has_many else 0)


class Reservation:
    """The place of one utterance, from its first stream until it is given up."""

    def __init__(self, reservations: Reservations, *, resumed: bool = False, follows: bool = False) -> None:
        """`resumed`: begun by another session, so it goes ahead of new utterances; as anyone can say so, not where its
        caller has many. `follows`: its session had others before, so it waits for workers that are being replaced, as
        they do.
        """
        self._all = reservations
        self._resumed = resumed
        self._follows = follows
        self._is_open = False
        self._stream: EngineStream | None = None  # the latest stream, until it ends
        self._kept_at: str | None = None  # the checkpoint at which a place is kept

    def open(self, params: SynthesisParams, credit_frames: int, known_codes: Int16Array | None = None) -> EngineStream:
        """Open a stream. Raises EngineUnavailable, what `check` raises, and for the first stream EngineOverloaded."""
        is_kept = self._kept_at is not None
        spare = 0 if is_kept else self._all.spare(params.checkpoint)
        stream = self._all.engine.open(
            params,
            credit_frames,
            known_codes,
            spare=spare,
            waits=self._follows or is_kept,
            caller=self._all.caller_id,
            in_turn=self._resumed and not is_kept and self._all.has_many,
        )
        self.give_up()
        self._is_open = True
        self._all.num_open[self._all.caller] += 1
        self._stream = stream
        stream.when_ended = lambda: self._keep(params.checkpoint)
        return stream

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

    def _keep(self, checkpoint: str) -> None:
        self._stream, self._kept_at = None, checkpoint
        self._all.keep(checkpoint, +1)


def _caller_id(caller: str) -> int:
    """Return the same id in all processes, as the talker treats the streams of one caller alike wherever they come
    from."""
    return int.from_bytes(blake2b(caller.encode(), digest_size=7).digest())
