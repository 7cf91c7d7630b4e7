"""Decides where the streams of one checkpoint run: on one of its worker pairs, and on another when that goes down.

Each stream has a home, the pair on which it takes a place; it runs there or waits to run. When a pair goes down, its
streams wait and continue on the first pair that has room: another one that serves, a standby, or their own when it is
up again.
"""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Protocol

from sonorant.engine.serving.keeping import KeptStream, local_end
from sonorant.engine.serving.owner_link import Verdicts
from sonorant.engine.types import FinishReason, StreamEnd
from sonorant.engine.workers.endpoint import EngineState, assign_standbys

OVER = (EngineState.FAILED, EngineState.CLOSED)  # a pair does not come back from these


class Pair(Protocol):
    """The part of a worker pair that a placement uses; `sonorant.engine.serving.engine.Engine` is one."""

    state: EngineState
    is_standby: bool

    resting: set[KeptStream]  # its streams that have lent their slots to others; they take no place

    @property
    def number(self) -> int:
        """Its place among all pairs of the server."""

    @property
    def num_places(self) -> int:
        """The number of places taken by streams of the talker, and kept for them."""

    def rest(self, stream: KeptStream) -> None:
        """The stream has lent its slot to others."""

    def room_for(self, stream: KeptStream, *, queued: bool) -> int:
        """How many more streams of this one's kind the pair can take now; with `queued`, also into its queue."""

    def begin(self, stream: KeptStream) -> None:
        """Open the stream with the workers."""

    def add_stream(self, stream: KeptStream) -> None:
        """Become the stream's home."""

    def remove_stream(self, stream: KeptStream) -> None:
        """Stop being the stream's home."""


class Placement:
    def __init__(self, pairs: Sequence[Pair], verdicts: Verdicts, set_waiting: Callable[[bool], None]) -> None:
        """`set_waiting` notes whether streams wait for room, so that other server processes tell when there is some."""
        self._pairs = pairs
        self._set_waiting = set_waiting
        self._home: dict[KeptStream, Pair] = {}
        self._waiting: dict[KeptStream, None] = {}  # to run, in order
        self.verdicts = verdicts

    # Called by streams, as their Keeper

    def run(self, stream: KeptStream) -> None:
        is_next = not self._waiting and stream not in self.verdicts.held
        if is_next and (home := self._home[stream]) is self._pair_for(stream):
            home.begin(stream)
            return
        self._waiting[stream] = None
        self.place_waiting()

    def end(self, stream: KeptStream, end: StreamEnd) -> None:
        """End a stream. No stream ends anywhere else."""
        home = self._home.pop(stream)
        self._waiting.pop(stream, None)
        stream.finish(end)  # an utterance may keep the place for its next stream here, before others see it free
        home.remove_stream(stream)
        self.verdicts.acquit([stream])
        self.place_waiting()

    # Called by pairs

    def add(self, stream: KeptStream, pair: Pair) -> None:
        self._home[stream] = pair
        pair.add_stream(stream)

    def on_yielded(self, stream: KeptStream) -> None:
        """The talker has given the stream's slot or pages to another one."""
        if stream.stop():
            self.end(stream, local_end(FinishReason.CANCELLED))
            return
        self._home[stream].rest(stream)
        if stream.is_runnable:  # text for it came while this news was on its way
            self._waiting[stream] = None
        self.place_waiting()

    def on_ready(self) -> None:
        assign_standbys(self._pairs)
        self.place_waiting()

    def on_death(self, pair: Pair, running: Sequence[KeptStream], reason: str) -> None:
        """The workers of a pair have died; `running` are the streams that ran there."""
        assign_standbys(self._pairs)
        cancelled = {stream for stream in running if stream.stop()}
        self.verdicts.on_death(
            pair.number,
            running,
            comes_back=pair.state is EngineState.RESTARTING,
            then=lambda culprit: self._on_verdict(culprit, running, cancelled, reason),
        )

    def _on_verdict(
        self, culprit: KeptStream | None, running: Sequence[KeptStream], cancelled: AbstractSet[KeptStream], reason: str
    ) -> None:
        unavailable = local_end(FinishReason.UNAVAILABLE, f"the engine became unavailable: {reason}")
        for stream in running:
            if stream not in self._home:
                pass  # it has ended meanwhile
            elif stream in cancelled:
                self.end(stream, local_end(FinishReason.CANCELLED))
            elif stream is culprit:
                self.end(stream, local_end(FinishReason.FAILED, f"workers went down twice at this utterance: {reason}"))
            elif not stream.outlives_workers:
                self.end(stream, unavailable)
            elif stream.is_runnable:
                self._waiting[stream] = None
        if done := [stream for stream in running if stream not in self._waiting]:
            self.verdicts.acquit(done)
        if all(each.state in OVER for each in self._pairs):
            for stream in list(self._home):
                self.end(stream, unavailable)
        self.place_waiting()

    # Decisions

    def place_waiting(self) -> None:
        """Place what waits: there may be room on a pair, or a stream may go on that might have killed workers."""
        if not self._waiting:
            return
        self._set_waiting(True)  # before the look, or room that is freed now goes unnoticed
        for stream in sorted(self._waiting, key=lambda stream: stream.is_background):  # the others in order
            if stream not in self.verdicts.held and (pair := self._pair_for(stream)) is not None:
                del self._waiting[stream]
                if pair is not self._home[stream]:
                    self._home[stream].remove_stream(stream)
                    self.add(stream, pair)
                pair.begin(stream)
        self._set_waiting(bool(self._waiting))

    def _pair_for(self, stream: KeptStream) -> Pair | None:
        home = self._home[stream]
        has_place = stream not in home.resting or home.room_for(stream, queued=True) > 0
        is_open = home.state is EngineState.READY and has_place
        if is_open and not home.is_standby:
            return home
        serving = [pair for pair in self._pairs if pair.state is EngineState.READY and not pair.is_standby]
        # On another pair the stream must get a slot at once: queueing there may take longer than until its own pair is
        # back. Only if that will not come back may it queue elsewhere.
        is_lost = home.state in OVER
        with_room = [pair for pair in serving if pair.room_for(stream, queued=is_lost) > 0]
        return min(with_room, key=lambda pair: pair.num_places, default=home if is_open else None)
