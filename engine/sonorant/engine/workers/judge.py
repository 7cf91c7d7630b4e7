"""Judges deaths of worker pairs, so that a stream that kills workers is found and ends alone. Pure.

The streams may belong to several server processes. Each death is an inquiry. It ends when every server process has
said which of its streams ran there, or is gone. `Suspects` then judges all of them together, for the pairs of one
checkpoint.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Ruling:
    culprit: int  # the id of a stream; 0 for none
    is_narrower: bool  # the death narrowed the suspects down, so it does not count against the workers


class Suspects:
    """The streams of one checkpoint, by their ids.

    A death does not say which stream caused it. Streams that were heard before continue at once, together. The others
    follow one by one, because a worker most often dies at the beginning of a stream. A stream that continues is on
    trial until it is heard again. If workers die while exactly one stream is on trial, it is the culprit. If several
    are, the two halves are tried separately.
    """

    def __init__(self) -> None:
        self._trial: set[int] = set()
        self.held: deque[list[int]] = deque()  # groups that wait for the end of the trial, each to be tried together

    def on_death(self, live: Sequence[int], was_heard: Callable[[int], bool]) -> Ruling:
        """Workers with these streams have died. All of them are suspects now, except for a culprit."""
        tried = [stream for stream in live if stream in self._trial]
        others = [stream for stream in live if stream not in self._trial]
        culprit = tried[0] if len(tried) == 1 else 0
        half = (len(tried) + 1) // 2
        halves = [] if culprit else [tried[:half], tried[half:]]
        together = [stream for stream in others if was_heard(stream)]
        alone = [[stream] for stream in others if not was_heard(stream)]
        self._trial.difference_update(tried)
        self.held.extendleft(reversed([together, *halves, *alone]))
        self._go_on()
        return Ruling(culprit, bool(tried))

    def acquit(self, streams: Iterable[int]) -> bool:
        """Clear streams that were heard, have ended, or have nothing to do next. True if others may continue now."""
        if not self._trial:
            return False
        for stream in streams:
            self._trial.discard(stream)
            for group in self.held:
                if stream in group:
                    group.remove(stream)
        return self._go_on()

    def _go_on(self) -> bool:
        """Put the next group on trial if nobody is on trial; True if there was one."""
        before = len(self.held)
        while not self._trial and self.held:
            self._trial = set(self.held.popleft())
        return len(self.held) < before


@dataclass(slots=True)
class Inquiry:
    awaited: set[int]  # server processes that have not answered
    live: dict[int, int] = field(default_factory=dict)  # the server processes of streams, by the ids of these
    heard: set[int] = field(default_factory=set)


class Inquiries:
    """Those of one checkpoint."""

    def __init__(self) -> None:
        self._open: dict[int, Inquiry] = {}  # by the number of the pair
        self._suspects = Suspects()
        self._known: dict[int, int] = {}  # as Inquiry.live: streams that were judged and not acquitted
        self._held: dict[int, int] = {}  # those of them that may not go on yet

    def open(self, pair: int, servers: Collection[int]) -> None:
        """Workers have died, and these server processes are asked."""
        self._open[pair] = Inquiry(set(servers))

    def answer(self, pair: int, server: int, live: Iterable[int], heard: Iterable[int]) -> bool:
        """Take a server process's answer; return False if none of it is awaited."""
        inquiry = self._open.get(pair)
        if inquiry is None or server not in inquiry.awaited:
            return False
        inquiry.awaited.discard(server)
        inquiry.live |= dict.fromkeys(live, server)
        inquiry.heard.update(heard)
        return True

    def leave(self, server: int) -> None:
        """A server process is gone with its streams."""
        for inquiry in self._open.values():
            inquiry.awaited.discard(server)
            inquiry.live = {stream_id: of for stream_id, of in inquiry.live.items() if of != server}
        self.acquit({stream_id for stream_id, of in self._known.items() if of == server})

    def judge(self, pair: int, *, must: bool = False) -> Ruling | None:
        """Close the inquiry of a pair once it is complete, or if it `must` be, with the answers that have come. Return
        None if it stays open, or there is none."""
        inquiry = self._open.get(pair)
        if inquiry is None or (inquiry.awaited and not must):
            return None
        del self._open[pair]
        if not inquiry.live:
            return Ruling(0, False)
        ruling = self._suspects.on_death(list(inquiry.live), inquiry.heard.__contains__)
        self._known.update(inquiry.live)
        self._held.update(inquiry.live)
        return ruling

    def acquit(self, stream_ids: Collection[int]) -> None:
        """Clear streams that were heard, have ended, or have nothing to do next."""
        for inquiry in self._open.values():
            inquiry.live = {stream_id: of for stream_id, of in inquiry.live.items() if stream_id not in stream_ids}
        self._suspects.acquit(stream_ids)
        for stream_id in stream_ids:
            self._known.pop(stream_id, None)
            self._held.pop(stream_id, None)

    def released(self) -> dict[int, list[int]]:
        """Return the streams that may go on from now on, by server process."""
        by_server: dict[int, list[int]] = {}
        for stream_id in sorted(self._held.keys() - set().union(*self._suspects.held)):
            by_server.setdefault(self._held.pop(stream_id), []).append(stream_id)
        return by_server
