"""Judges deaths of worker pairs whose streams belong to several fronts. Pure: what is to be told is returned.

Each death is an inquiry. It ends when every front has said which of its streams ran there, or is gone. `Suspects` then
judges all of them together, for the pairs of one checkpoint.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from sonorant.engine.ipc.front_ids import front_of
from sonorant.engine.serving.suspects import Suspects


@dataclass(slots=True)
class Inquiry:
    awaited: set[int]  # fronts that have not answered
    live: list[int] = field(default_factory=list)  # ids of streams
    heard: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Ruling:
    culprit: int  # the id of a stream; 0 for none
    is_narrower: bool  # the death narrowed the suspects down, so it does not count against the workers


class Inquiries:
    """Those of one checkpoint."""

    def __init__(self) -> None:
        self._open: dict[int, Inquiry] = {}  # by the number of the pair
        self._suspects = Suspects[int]()
        self._known: set[int] = set()  # streams that were judged and not acquitted
        self._held: set[int] = set()  # those of them that may not go on yet

    def open(self, pair: int, fronts: Collection[int]) -> None:
        """Workers have died, and these fronts are asked."""
        self._open[pair] = Inquiry(set(fronts))

    def is_awaited(self, pair: int, front: int) -> bool:
        return pair in self._open and front in self._open[pair].awaited

    def answer(self, pair: int, front: int, live: Iterable[int], heard: Iterable[int]) -> None:
        """Take a front's answer, which must be awaited."""
        inquiry = self._open[pair]
        inquiry.awaited.discard(front)
        inquiry.live += live
        inquiry.heard.update(heard)

    def leave(self, front: int) -> None:
        """A front is gone with its streams."""
        for inquiry in self._open.values():
            inquiry.awaited.discard(front)
            inquiry.live = [stream_id for stream_id in inquiry.live if front_of(stream_id) != front]
        self.acquit({stream_id for stream_id in self._known if front_of(stream_id) == front})

    def is_complete(self, pair: int) -> bool:
        return pair in self._open and not self._open[pair].awaited

    def judge(self, pair: int) -> Ruling:
        """Close an inquiry, with the answers that have come."""
        inquiry = self._open.pop(pair)
        if not inquiry.live:
            return Ruling(0, False)
        verdict = self._suspects.on_death(inquiry.live, inquiry.heard.__contains__)
        self._known.update(inquiry.live)
        self._held.update(inquiry.live)
        return Ruling(verdict.culprit or 0, verdict.is_narrower)

    def acquit(self, stream_ids: Collection[int]) -> None:
        """Clear streams that were heard, have ended, or have nothing to do next."""
        for inquiry in self._open.values():
            inquiry.live = [stream_id for stream_id in inquiry.live if stream_id not in stream_ids]
        self._suspects.acquit(stream_ids)
        self._known.difference_update(stream_ids)
        self._held.difference_update(stream_ids)

    def released(self) -> dict[int, list[int]]:
        """Return the streams that may go on from now on, by front."""
        by_front: dict[int, list[int]] = {}
        for stream_id in sorted(self._held):
            if self._suspects.may_go_on(stream_id):
                self._held.discard(stream_id)
                by_front.setdefault(front_of(stream_id), []).append(stream_id)
        return by_front
