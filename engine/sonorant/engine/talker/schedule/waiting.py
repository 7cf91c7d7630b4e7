"""Streams that wait to be admitted: callers take turns, and the streams of one caller come in order. Pure.

One caller may have as many streams as the queue holds, and each may speak for minutes. With first come, first served,
all other callers would wait until these are done. Slots and KV pages are shared out by the same rule (`shares.py`): a
few streams with long texts or large frame limits can hold most of the pages. A caller's only stream leaves nothing to
others, as it might never fit.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from sonorant.engine.shares import Shares
from sonorant.engine.talker.schedule.stream import NO_SLOT, Stream


@dataclass(slots=True)
class _Held:
    """What one caller has."""

    num_slots: int = 0
    pages: Counter[int] = field(default_factory=Counter)  # by page, how many of its streams have it


class WaitingStreams:
    def __init__(self, num_slots: int, num_pages: int) -> None:
        self._slots = Shares.of_engine(num_slots)
        self._pages = Shares.of_engine(num_pages)
        self._queues: dict[int, dict[int, Stream]] = {}  # by caller, in the order of their turns; none is empty
        self._held: dict[int, _Held] = {}  # by caller, of those that have something

    def __bool__(self) -> bool:
        return bool(self._queues)

    @property
    def callers(self) -> Collection[int]:
        """Those that wait."""
        return self._queues.keys()

    def add(self, stream: Stream) -> None:
        self._queues.setdefault(stream.request.caller, {})[stream.stream_id] = stream

    def first(self, num_free_slots: int, num_free_pages: int, num_new_pages: Callable[[Stream], int]) -> Stream | None:
        """Return the stream whose turn it is, when so much is free. `num_new_pages`: of these, how many it would take.

        Returns None if no stream waits, or if all callers that wait have to leave what is free to others. The answer
        stays the same until the stream is admitted or removed, or what is free changes.
        """
        for caller, queue in self._queues.items():
            stream = next(iter(queue.values()))
            held = self._held.get(caller) if caller else None
            if held is None or (
                self._slots.leaves_enough(1, held.num_slots, num_free_slots)
                and self._pages.leaves_enough(num_new_pages(stream), len(held.pages), num_free_pages)
            ):
                return stream
        return None

    def remove(self, stream: Stream) -> None:
        """Remove a stream, if it waits."""
        caller = stream.request.caller
        queue = self._queues.get(caller, {})
        if queue.pop(stream.stream_id, None) is not None and not queue:
            del self._queues[caller]

    def admit(self, stream: Stream) -> None:
        """Note that a stream was admitted, waiting or not; its caller's next stream comes after those of others."""
        caller = stream.request.caller
        self.remove(stream)
        if queue := self._queues.pop(caller, None):
            self._queues[caller] = queue
        held = self._held.setdefault(caller, _Held())
        held.num_slots += 1
        held.pages.update(stream.pages)

    def grew(self, stream: Stream, pages: Sequence[int]) -> None:
        """Note that an admitted stream was given more pages."""
        self._held[stream.request.caller].pages.update(pages)

    def release(self, stream: Stream) -> None:
        """Note that the slot and the pages of a stream are free again."""
        caller = stream.request.caller
        held = self._held[caller]
        held.num_slots -= 1
        if not held.num_slots:
            del self._held[caller]
            return
        for page in stream.pages:
            held.pages[page] -= 1
            if not held.pages[page]:
                del held.pages[page]

    def check_conservation(self, streams: Iterable[Stream]) -> None:
        """Raise RuntimeError unless what the callers hold is what the open streams hold."""
        held: dict[int, _Held] = {}
        for stream in streams:
            if stream.slot != NO_SLOT:
                of_caller = held.setdefault(stream.request.caller, _Held())
                of_caller.num_slots += 1
                of_caller.pages.update(stream.pages)
        if held != self._held:
            raise RuntimeError("the slots and KV pages noted for the callers are not those that their streams hold")


def by_turns(streams: Iterable[Stream]) -> list[Stream]:
    """Sort streams: the first one of each caller, then the second one of each, and so on.

    Those of nobody in particular count as first ones, and so do those that go on behind frames made before, unless they
    were admitted by turns, too.
    """
    num_before: Counter[int] = Counter()

    def turn(stream: Stream) -> int:
        caller = stream.request.caller
        if not caller or (stream.first_frame and not stream.request.in_turn):
            return 1
        num_before[caller] += 1
        return num_before[caller]

    return sorted(streams, key=turn)
