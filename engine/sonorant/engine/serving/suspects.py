"""Decides which streams may continue after workers died, so that one that kills them is found and ends alone. Pure.

A death does not say which stream caused it. Streams that were heard before continue at once, together. Those that were
not follow one by one, because a worker most often dies at the beginning of a stream. A stream that continues is on
trial until it is heard again. If workers die while exactly one stream is on trial, it is the culprit; if several are,
the two halves are tried separately.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Verdict(Generic[S]):
    culprit: S | None
    is_narrower: bool  # whether the death narrowed the suspects down: streams were on trial


class Suspects(Generic[S]):
    def __init__(self) -> None:
        self._trial: set[S] = set()
        self._held: deque[list[S]] = deque()  # groups that wait for the end of the trial, each to be tried together

    def may_go_on(self, stream: S) -> bool:
        return not any(stream in group for group in self._held)

    def on_death(self, live: Sequence[S], was_heard: Callable[[S], bool]) -> Verdict[S]:
        """Workers with these streams have died. All of them are suspects now, except for a culprit."""
        tried = [stream for stream in live if stream in self._trial]
        others = [stream for stream in live if stream not in self._trial]
        culprit = tried[0] if len(tried) == 1 else None
        half = (len(tried) + 1) // 2
        halves = [] if culprit is not None else [tried[:half], tried[half:]]
        together = [stream for stream in others if was_heard(stream)]
        alone = [[stream] for stream in others if not was_heard(stream)]
        self._trial.difference_update(tried)
        self._held.extendleft(reversed([together, *halves, *alone]))
        self._go_on()
        return Verdict(culprit, bool(tried))

    def acquit(self, streams: Iterable[S]) -> bool:
        """Clear streams that were heard, have ended, or have nothing to do next. True if others may continue now."""
        if not self._trial:
            return False
        for stream in streams:
            self._trial.discard(stream)
            for group in self._held:
                if stream in group:
                    group.remove(stream)
        return self._go_on()

    def _go_on(self) -> bool:
        """Put the next group on trial if nobody is on trial; True if there was one."""
        before = len(self._held)
        while not self._trial and self._held:
            self._trial = set(self._held.popleft())
        return len(self._held) < before
