"""Who has a place in the engine. An utterance that has begun keeps its place between two of its streams.

Each sentence and each flush is a stream of its own. Without a place that is kept, a begun utterance would compete with
newcomers at each of them, and break off in the middle when the engine is full. And a caller who has many utterances
leaves a part of the places to those who have few. The engine does the same with its slots.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sonorant.engine import EnginePool, EngineStream, Int16Array, SynthesisParams

FOR_OTHERS = 8  # one place in so many; fewer than of sessions, since what is kept free is speech not made


@dataclass(frozen=True, slots=True)
class Reservations:
    """Of all utterances of this server, as they are for one caller."""

    engine: EnginePool
    num_callers: Callable[[], int] = lambda: 1  # who could come; 1 = all are one
    num_kept: Counter[str] = field(default_factory=Counter)  # by checkpoint, of those whose next stream is not open yet
    num_open: Counter[str] = field(default_factory=Counter)  # by caller
    caller: str = ""  # whose places are counted together; "" may take all

    def of(self, caller: str) -> "Reservations":
        return replace(self, caller=caller)

    @property
    def caller_id(self) -> int:
        """For the engine; 0 where all callers are one."""
        return hash(self.caller) if self.caller and self.num_callers() > 1 else 0

    def spare(self, checkpoint: str) -> int:
        """How many places a new utterance of this caller must leave."""
        kept, limit, num_callers = self.num_kept[checkpoint], self.engine.info.max_streams, self.num_callers()
        has_many = bool(self.caller) and self.num_open[self.caller] >= max(1, limit // num_callers)
        return kept + limit // FOR_OTHERS if has_many and num_callers > 1 else kept


class Reservation:
    """Of one utterance: made by its first stream, until it is given up."""

    def __init__(self, reservations: Reservations, *, resumed: bool = False, follows: bool = False) -> None:
        """`resumed`: begun elsewhere, so it goes ahead of newcomers here, too. `follows`: on others of its session, so
        that it waits for workers that are being replaced, as they do."""
        self._all = reservations
        self._resumed = resumed
        self._follows = follows
        self._is_open = False
        self._stream: EngineStream | None = None  # the latest, while it lasts
        self._kept_at: str | None = None  # the checkpoint, where a place is kept

    def open(self, params: SynthesisParams, credit_frames: int, known_codes: Int16Array | None = None) -> EngineStream:
        """Raises EngineOverloaded, for the first stream only; EngineUnavailable, and what `check` raises."""
        spare = 0 if self._kept_at is not None or self._resumed else self._all.spare(params.checkpoint)
        waits = self._follows or self._kept_at is not None
        caller = self._all.caller_id
        stream = self._all.engine.open(params, credit_frames, known_codes, spare=spare, waits=waits, caller=caller)
        self.give_up()
        self._is_open = True
        self._all.num_open[self._all.caller] += 1
        self._stream = stream
        stream.when_ended = lambda: self._keep(params.checkpoint)
        return stream

    def give_up(self) -> None:
        if self._stream is not None:
            self._stream.when_ended = None
            self._stream = None
        if self._kept_at is not None:
            self._all.num_kept[self._kept_at] -= 1
            self._kept_at = None
        if self._is_open:
            self._is_open = False
            self._all.num_open[self._all.caller] -= 1
            if not self._all.num_open[self._all.caller]:
                del self._all.num_open[self._all.caller]  # whoever has gone is not remembered

    def _keep(self, checkpoint: str) -> None:
        self._stream, self._kept_at = None, checkpoint
        self._all.num_kept[checkpoint] += 1
