"""Who decides which streams may go on after workers died: this process, or the one that owns the workers."""

from collections.abc import Callable, Sequence
from typing import Protocol

from sonorant.engine.serving.keeping import KeptStream
from sonorant.engine.serving.state import EngineState
from sonorant.engine.serving.suspects import Suspects, Verdict


class MortalPair(Protocol):
    """The part of a worker pair that a judge uses."""

    state: EngineState

    @property
    def number(self) -> int:
        """Its place among all pairs of the server."""

    def forgive(self) -> None:
        """Do not count this failure against the workers: a stream caused it, or the restart helps to find out which."""


class Judge(Protocol):
    """Decides for the streams of one checkpoint. `Placement` sets `on_released`."""

    on_released: Callable[[], None]  # called when more streams may go on, other than by a method of this

    def may_go_on(self, stream: KeptStream) -> bool: ...

    def on_death(
        self, pair: MortalPair, live: Sequence[KeptStream], then: Callable[[Verdict[KeptStream]], None]
    ) -> None:
        """The workers of a pair with these streams have died. Call `then` with the verdict, now or later; until then
        none of the streams may go on."""

    def acquit(self, streams: Sequence[KeptStream]) -> bool:
        """Clear streams that were heard, have ended, or have nothing to do next. True if others may continue now."""


class OwnJudge:
    """Judges at once, as all streams are of this process."""

    def __init__(self) -> None:
        self.on_released: Callable[[], None] = lambda: None
        self._suspects = Suspects[KeptStream]()

    def may_go_on(self, stream: KeptStream) -> bool:
        return self._suspects.may_go_on(stream)

    def on_death(
        self, pair: MortalPair, live: Sequence[KeptStream], then: Callable[[Verdict[KeptStream]], None]
    ) -> None:
        verdict: Verdict[KeptStream] = Verdict(None, False)
        if live:
            verdict = self._suspects.on_death(live, lambda stream: stream.was_heard)
        if verdict.is_narrower:
            pair.forgive()
        then(verdict)

    def acquit(self, streams: Sequence[KeptStream]) -> bool:
        return self._suspects.acquit(streams)
