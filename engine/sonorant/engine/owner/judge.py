"""Judges deaths of worker pairs, so that a stream that kills workers is found and ends alone. Pure.

The streams may belong to several server processes. Each death is an inquiry. It ends when every server process has
said which of its streams ran there, or is gone. `Suspects` then judges all of them together, for the pairs of one
checkpoint.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from sonorant.engine.ipc.server_ids import server_of


@dataclass(frozen=True, slots=True)
class Verdict:
    culprit: int | None
    is_narrower: bool  # whether the death narrowed the suspects down: streams were on trial


class Suspects:
    """The streams of one checkpoint, by their ids.

    A death does not say which stream caused it. Streams that were heard before continue at once, together. The others
    follow one by one, because a worker most often dies at the beginning of a stream. A stream that continues is on
    trial until it is heard again. If workers die while exactly one stream is on trial, it is the culprit. If several
    are, the two halves are tried separately.
    """

    def __init__(self) -> None:
        self._trial: set[int] = set()
        self._held: deque[list[int]] = deque()  # groups that wait for the end of the trial, each to be tried together

    def may_go_on(self, stream: int) -> bool:
        return not any(stream in group for group in self._held)

    def on_death(self, live: Sequence[int], was_heard: Callable[[int], bool]) -> Verdict:
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

    def acquit(self, streams: Iterable[int]) -> bool:
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


@dataclass(slots=True)
class Inquiry:
    awaited: set[int]  # server processes that have not answered
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
        self._suspects = Suspects()
        self._known: set[int] = set()  # streams that were judged and not acquitted
        self._held: set[int] = set()  # those of them that may not go on yet

    def open(self, pair: int, servers: Collection[int]) -> None:
        """Workers have died, and these server processes are asked."""
        self._open[pair] = Inquiry(set(servers))

    def is_awaited(self, pair: int, server: int) -> bool:
        return pair in self._open and server in self._open[pair].awaited

    def answer(self, pair: int, server: int, live: Iterable[int], heard: Iterable[int]) -> None:
        """Take a server process's answer, which must be awaited."""
        inquiry = self._open[pair]
        inquiry.awaited.discard(server)
        inquiry.live += live
        inquiry.heard.update(heard)

    def leave(self, server: int) -> None:
        """A server process is gone with its streams."""
        for inquiry in self._open.values():
            inquiry.awaited.discard(server)
            inquiry.live = [stream_id for stream_id in inquiry.live if server_of(stream_id) != server]
        self.acquit({stream_id for stream_id in self._known if server_of(stream_id) == server})

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
        """Return the streams that may go on from now on, by server process."""
        by_server: dict[int, list[int]] = {}
        for stream_id in sorted(self._held):
            if self._suspects.may_go_on(stream_id):
                self._held.discard(stream_id)
                by_server.setdefault(server_of(stream_id), []).append(stream_id)
        return by_server
