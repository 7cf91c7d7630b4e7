"""Streams that wait to be let in: those of one caller in order, callers by turns. Pure.

One caller may have as many as the queue holds, and each may speak for minutes. First come, first served would have all
others wait until these are done.
"""

from collections import Counter

from sonorant.engine.talker.stream import Stream

MANY = 2  # a caller with one slot in so many
FOR_OTHERS = 8  # leaves one in so many to others


class WaitingStreams:
    def __init__(self, num_slots: int) -> None:
        self._many = max(1, num_slots // MANY)
        self._kept = num_slots // FOR_OTHERS
        self._queues: dict[int, dict[int, Stream]] = {}  # by caller, in the order of their turns; none is empty
        self._num_inside: Counter[int] = Counter()  # slots by caller

    def add(self, stream: Stream) -> None:
        self._queues.setdefault(stream.open.caller, {})[stream.stream_id] = stream

    def first(self, num_free: int) -> Stream | None:
        """The stream whose turn it is, with so many slots free; None if those who wait have to leave these to others.

        It is the same one until it is let in or gone.
        """
        for caller, queue in self._queues.items():
            has_many = bool(caller) and self._num_inside[caller] >= self._many
            if num_free > self._kept or not has_many:
                return next(iter(queue.values()))
        return None

    def remove(self, stream: Stream) -> None:
        """If it waits."""
        caller = stream.open.caller
        queue = self._queues.get(caller, {})
        if queue.pop(stream.stream_id, None) is not None and not queue:
            del self._queues[caller]

    def let_in(self, stream: Stream) -> None:
        """It waits no more, and its caller's next one comes after those of others."""
        caller = stream.open.caller
        self.remove(stream)
        if queue := self._queues.pop(caller, None):
            self._queues[caller] = queue
        self._num_inside[caller] += 1

    def let_out(self, stream: Stream) -> None:
        """Its slot is free again."""
        caller = stream.open.caller
        self._num_inside[caller] -= 1
        if not self._num_inside[caller]:
            del self._num_inside[caller]
