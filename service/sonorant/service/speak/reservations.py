"""Who has a place in the engine. An utterance that has begun keeps its place between two of its streams.

Each sentence and each flush is a stream of its own. Without a place that is kept, a begun utterance would compete with
newcomers at each of them, and break off in the middle when the engine is full.
"""

from collections import Counter

from sonorant.engine import EnginePool, EngineStream, Int16Array, SynthesisParams


class Reservations:
    """Of all utterances of this server."""

    def __init__(self, engine: EnginePool) -> None:
        self.engine = engine
        self.num_kept = Counter[str]()  # by checkpoint: places of those whose next stream is not open yet


class Reservation:
    """Of one utterance: made by its first stream, until it is given up."""

    def __init__(self, reservations: Reservations, *, resumed: bool = False, follows: bool = False) -> None:
        """`resumed`: begun elsewhere, so it goes ahead of newcomers here, too. `follows`: on others of its session, so
        that it waits for workers that are being replaced, as they do."""
        self._all = reservations
        self._resumed = resumed
        self._follows = follows
        self._stream: EngineStream | None = None  # the latest, while it lasts
        self._kept_at: str | None = None  # the checkpoint, where a place is kept

    def open(self, params: SynthesisParams, credit_frames: int, known_codes: Int16Array | None = None) -> EngineStream:
        """Raises EngineOverloaded, for the first stream only; EngineUnavailable, and what `check` raises."""
        spare = 0 if self._kept_at is not None or self._resumed else self._all.num_kept[params.checkpoint]
        waits = self._follows or self._kept_at is not None
        stream = self._all.engine.open(params, credit_frames, known_codes, spare=spare, waits=waits)
        self.give_up()
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

    def _keep(self, checkpoint: str) -> None:
        self._stream, self._kept_at = None, checkpoint
        self._all.num_kept[checkpoint] += 1
