"""Where the streams of one checkpoint run: on one of its worker pairs, and on another when that goes down.

A stream has a home, the pair whose place it takes; it runs there or waits to. When workers die their streams wait, and
go on with whichever pair can take them first: another that serves, a standby, or their own when it is up again.
"""

from collections.abc import Sequence
from typing import Protocol

from sonorant.engine.serving.keeping import KeptStream, local_end
from sonorant.engine.serving.state import EngineState
from sonorant.engine.serving.suspects import Suspects, Verdict
from sonorant.engine.types import FinishReason, StreamEnd

OVER = (EngineState.FAILED, EngineState.CLOSED)  # from which no pair comes back


class Pair(Protocol):
    """What is asked of a worker pair, `sonorant.engine.serving.engine.Engine`."""

    state: EngineState
    is_standby: bool

    resting: set[KeptStream]  # streams of its own that have lent their slots: they take no place

    @property
    def num_places(self) -> int:
        """That are taken."""

    def room_for(self, stream: KeptStream, *, queued: bool) -> int:
        """How many more of its kind this pair takes now; `queued`: those count, too, that must wait for a slot."""

    def begin(self, stream: KeptStream) -> None:
        """Open it with the workers."""

    def take_in(self, stream: KeptStream) -> None: ...

    def let_go(self, stream: KeptStream) -> None: ...

    def blame_nobody(self) -> None:
        """The death of its workers was a stream's doing, or helps to find which."""


class Placement:
    def __init__(self, pairs: Sequence[Pair]) -> None:
        self._pairs = pairs
        self._home: dict[KeptStream, Pair] = {}
        self._waiting: dict[KeptStream, None] = {}  # to run, in order
        self._suspects = Suspects[KeptStream]()

    # What streams ask

    def run(self, stream: KeptStream) -> None:
        self._waiting[stream] = None
        self._place_waiting()

    def end(self, stream: KeptStream, end: StreamEnd) -> None:
        """The one place where a stream ends."""
        self._home.pop(stream).let_go(stream)
        self._waiting.pop(stream, None)
        stream.finish(end)
        self._suspects.acquit([stream])
        self._place_waiting()

    # What pairs tell

    def add(self, stream: KeptStream, pair: Pair) -> None:
        self._home[stream] = pair
        pair.take_in(stream)

    def on_heard(self, streams: Sequence[KeptStream]) -> None:
        if self._suspects.acquit(streams):
            self._place_waiting()

    def on_yielded(self, stream: KeptStream) -> None:
        """It had nothing to say, and its slot went to another."""
        if stream.stop():
            self.end(stream, local_end(FinishReason.CANCELLED))
            return
        self._home[stream].resting.add(stream)
        if stream.can_go_on:  # text has crossed the news on its way
            self._waiting[stream] = None
        self._place_waiting()

    def on_ready(self) -> None:
        self._assign_standbys()
        self._place_waiting()

    def on_death(self, pair: Pair, running: Sequence[KeptStream], reason: str) -> None:
        """Of the workers of a pair. These streams were running there."""
        self._assign_standbys()
        verdict = self._suspects.on_death(running, lambda stream: stream.was_heard) if running else Verdict(None, False)
        if verdict.is_narrower:
            pair.blame_nobody()
        detail = f"the engine became unavailable: {reason}"
        for stream in running:
            if stream.stop():
                self.end(stream, local_end(FinishReason.CANCELLED))
            elif stream is verdict.culprit:
                self.end(stream, local_end(FinishReason.FAILED, f"workers ended twice at this utterance: {reason}"))
            elif not stream.outlives_workers:
                self.end(stream, local_end(FinishReason.UNAVAILABLE, detail))
            elif stream.can_go_on:
                self._waiting[stream] = None
        self._suspects.acquit([stream for stream in running if stream not in self._waiting])
        if all(each.state in OVER for each in self._pairs):
            for stream in list(self._home):
                self.end(stream, local_end(FinishReason.UNAVAILABLE, detail))
        self._place_waiting()

    # Decisions

    def _place_waiting(self) -> None:
        for stream in list(self._waiting):
            if self._suspects.may_go_on(stream) and (pair := self._pair_for(stream)) is not None:
                del self._waiting[stream]
                if pair is not self._home[stream]:
                    self._home[stream].let_go(stream)
                    self.add(stream, pair)
                pair.begin(stream)

    def _pair_for(self, stream: KeptStream) -> Pair | None:
        home = self._home[stream]
        has_place = stream not in home.resting or home.room_for(stream, queued=True) > 0
        is_open = home.state is EngineState.READY and has_place
        if is_open and not home.is_standby:
            return home
        serving = [pair for pair in self._pairs if pair.state is EngineState.READY and not pair.is_standby]
        # Elsewhere into a slot, not into a queue that may be longer than the way back; unless there is no way back.
        is_lost = home.state in OVER
        with_room = [pair for pair in serving if pair.room_for(stream, queued=is_lost) > 0]
        return min(with_room, key=lambda pair: pair.num_places, default=home if is_open else None)

    def _assign_standbys(self) -> None:
        """A standby that serves takes the part of a pair that does not, and that one is the standby then."""
        for pair in self._pairs:
            ready = [each for each in self._pairs if each.is_standby and each.state is EngineState.READY]
            if not pair.is_standby and pair.state is not EngineState.READY and ready:
                pair.is_standby, ready[0].is_standby = True, False
