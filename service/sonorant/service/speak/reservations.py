"""Who has a place in the engine. An utterance that has begun keeps its place between two of its streams.

Each sentence and each flush is a stream of its own. Without a place that is kept, a begun utterance would compete with
newcomers at each of them, and break off in the middle when the engine is full.
"""

from collections import defaultdict

from sonorant.engine import EnginePool, EngineStream, Int16Array, SynthesisParams


class Reservations:
    """Of all utterances of this server."""

    def __init__(self, engine: EnginePool) -> None:
        self.engine = engine
        self._begun: defaultdict[str, set[Reservation]] = defaultdict(set)  # by checkpoint

    def num_kept(self, checkpoint: str) -> int:
        """Places of those whose next stream is not open yet."""
        return sum(each.is_kept for each in self._begun[checkpoint])

    def add(self, reservation: "Reservation", checkpoint: str) -> None:
        self._begun[checkpoint].add(reservation)

    def discard(self, reservation: "Reservation", checkpoint: str) -> None:
        self._begun[checkpoint].discard(reservation)


class Reservation:
    """Of one utterance: made by its first stream, until it is given up."""

    def __init__(self, reservations: Reservations, *, resumed: bool = False) -> None:
        """`resumed`: begun elsewhere, so it goes ahead of newcomers here, too."""
        self._all = reservations
        self._resumed = resumed
        self._stream: EngineStream | None = None  # the latest
        self._checkpoint = ""

    @property
    def is_kept(self) -> bool:
        return self._stream is not None and self._stream.ended

    def open(self, params: SynthesisParams, credit_frames: int, known_codes: Int16Array | None = None) -> EngineStream:
        """Raises EngineOverloaded, for the first stream only; EngineUnavailable, and what `check` raises."""
        spare = 0 if self.is_kept or self._resumed else self._all.num_kept(params.checkpoint)
        self._stream = self._all.engine.open(params, credit_frames, known_codes, spare=spare)
        self._checkpoint = params.checkpoint
        self._all.add(self, self._checkpoint)
        return self._stream

    def give_up(self) -> None:
        self._all.discard(self, self._checkpoint)
        self._stream = None
