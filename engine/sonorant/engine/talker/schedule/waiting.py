"""The queue of streams that wait to be admitted: ranks in order, in a rank callers in turns. Pure.

One caller may have as many streams as the queue holds, and each may speak for minutes. With first come, first served,
all other callers would wait until these are done. Slots and KV pages are shared out by the same rule (`shares.py`): a
few streams with long texts or large frame limits can hold most of the pages. A caller's only stream leaves nothing to
others, as it might never fit.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from sonorant.engine.shares import Shares
from sonorant.engine.talker.schedule.stream import NO_SLOT, TalkerStream


class StreamRank(IntEnum):
    GOES_ON = 0  # behind frames made before: somebody is listening, so these take no turns and leave nothing to others
    NEW = 1
    BACKGROUND = 2

    @classmethod
    def of(cls, stream: TalkerStream) -> "StreamRank":
        if stream.is_background:
            return cls.BACKGROUND
        return cls.GOES_ON if stream.first_frame and not stream.request.in_turn else cls.NEW


INTERACTIVE, BACKGROUND = (StreamRank.GOES_ON, StreamRank.NEW), (StreamRank.BACKGROUND,)


@dataclass(slots=True)
class _Held:
    """What one caller has."""

    num_slots: int = 0
    pages: Counter[int] = field(default_factory=Counter)  # by page, how many of its streams have it


class WaitingStreams:
    def __init__(self, num_slots: int, num_pages: int, most_background: int) -> None:
        self._slots = {False: Shares.of_engine(num_slots), True: Shares.of_engine(most_background)}  # by is_background
        self._pages = Shares.of_engine(num_pages)
        # By rank and by caller, in the order of their turns; no caller's is empty.
        self._queues: dict[StreamRank, dict[int, dict[int, TalkerStream]]] = {rank: {} for rank in StreamRank}
        self._held: dict[tuple[bool, int], _Held] = {}  # by is_background and caller, of those that have something

    def __bool__(self) -> bool:
        return any(self._queues.values())

    def any_of(self, ranks: Iterable[StreamRank]) -> bool:
        return any(self._queues[rank] for rank in ranks)

    def callers(self, rank: StreamRank) -> Collection[int]:
        """Those that wait in this rank."""
        return self._queues[rank].keys()

    def add(self, stream: TalkerStream) -> None:
        self._queues[StreamRank.of(stream)].setdefault(_turn_of(stream), {})[stream.stream_id] = stream

    def first(
        self,
        ranks: Iterable[StreamRank],
        num_free_slots: int,
        num_free_pages: int,
        num_new_pages: Callable[[TalkerStream], int],
    ) -> TalkerStream | None:
        """Return the stream whose turn it is, when so much is free. `num_new_pages`: of these, how many it would take.

        Returns None if no stream waits, or if all callers that wait have to leave what is free to others. The answer
        stays the same until the stream is admitted or removed, or what is free changes.
        """
        for rank in ranks:
            is_background = rank is StreamRank.BACKGROUND
            slots = self._slots[is_background]
            for caller, queue in self._queues[rank].items():
                stream = next(iter(queue.values()))
                held = self._held.get((is_background, caller)) if caller else None
                if held is None or (
                    slots.leaves_enough(1, held.num_slots, num_free_slots)
                    and self._pages.leaves_enough(num_new_pages(stream), len(held.pages), num_free_pages)
                ):
                    return stream
        return None

    def remove(self, stream: TalkerStream) -> None:
        """Remove a stream, if it waits."""
        queues, turn = self._queues[StreamRank.of(stream)], _turn_of(stream)
        queue = queues.get(turn, {})
        if queue.pop(stream.stream_id, None) is not None and not queue:
            del queues[turn]

    def admit(self, stream: TalkerStream) -> None:
        """Note that a stream was admitted; its caller's next stream comes after those of others."""
        self.remove(stream)
        queues, turn = self._queues[StreamRank.of(stream)], _turn_of(stream)
        if queue := queues.pop(turn, None):
            queues[turn] = queue
        held = self._held.setdefault(_holder_of(stream), _Held())
        held.num_slots += 1
        held.pages.update(stream.pages)

    def grew(self, stream: TalkerStream, pages: Sequence[int]) -> None:
        """Note that an admitted stream was given more pages."""
        self._held[_holder_of(stream)].pages.update(pages)

    def release(self, stream: TalkerStream) -> None:
        """Note that the slot and the pages of a stream are free again."""
        holder = _holder_of(stream)
        held = self._held[holder]
        held.num_slots -= 1
        if not held.num_slots:
            del self._held[holder]
            return
        for page in stream.pages:
            held.pages[page] -= 1
            if not held.pages[page]:
                del held.pages[page]

    def check_conservation(self, streams: Iterable[TalkerStream]) -> None:
        """Raise RuntimeError unless what the callers hold is what the open streams hold."""
        held: dict[tuple[bool, int], _Held] = {}
        for stream in streams:
            if stream.slot != NO_SLOT:
                of_caller = held.setdefault(_holder_of(stream), _Held())
                of_caller.num_slots += 1
                of_caller.pages.update(stream.pages)
        if held != self._held:
            raise RuntimeError("the slots and KV pages noted for the callers are not those that their streams hold")


def _turn_of(stream: TalkerStream) -> int:
    """Return whose turns the stream takes; 0 = nobody's in particular."""
    return 0 if StreamRank.of(stream) is StreamRank.GOES_ON else stream.request.caller


def _holder_of(stream: TalkerStream) -> tuple[bool, int]:
    return stream.is_background, stream.request.caller


def by_turns(streams: Iterable[TalkerStream]) -> list[TalkerStream]:
    """Sort streams: the first one of each caller, then the second one of each, and so on.

    A stream without a caller counts as a first one. So does a stream that goes on behind frames made before, unless it
    was admitted by turns, too.
    """
    num_before: Counter[int] = Counter()

    def turn(stream: TalkerStream) -> int:
        caller = stream.request.caller
        if not caller or (stream.first_frame and not stream.request.in_turn):
            return 1
        num_before[caller] += 1
        return num_before[caller]

    return sorted(streams, key=turn)
