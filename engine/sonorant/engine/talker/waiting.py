"""Streams that wait to be admitted: callers take turns, and the streams of one caller come in order. Pure.

One caller may have as many streams as the queue holds, and each may speak for minutes. With first come, first served,
all other callers would wait until these are done.
"""

from collections import Counter

from sonorant.engine.talker.stream import Stream

MANY = 2  # a caller with one in so many of the slots has many, ...
FOR_OTHERS = 8  # ... and must leave one in so many to others


class WaitingStreams:
    def __init__(self, num_slots: int) -> None:
        self._many = max(1, num_slots // MANY)
        self._kept = num_slots // FOR_OTHERS
        self._queues: dict[int, dict[int, Stream]] = {}  # by caller, in the order of their turns; none is empty
        self._num_inside: Counter[int] = Counter()  # how many slots each caller has

    def add(self, stream: Stream) -> None:
        self._queues.setdefault(stream.open.caller, {})[stream.stream_id] = stream

    def first(self, num_free: int) -> Stream | None:
        """Return the stream whose turn it is when `num_free` slots are free.

        Returns None if no stream waits, or if all callers that wait have to leave these slots to others. With the same
        slots, the answer stays the same until the stream is admitted or removed.
        """
        for caller, queue in self._queues.items():
            has_many = bool(caller) and self._num_inside[caller] >= self._many
            if num_free > self._kept or not has_many:
                return next(iter(queue.values()))
        return None

    def remove(self, stream: Stream) -> None:
        """Remove a stream, if it waits."""
        caller = stream.open.caller
        queue = self._queues.get(caller, {})
        if queue.pop(stream.stream_id, None) is not None and not queue:
            del self._queues[caller]

    def let_in(self, stream: Stream) -> None:
        """Note that a stream was admitted, waiting or not; its caller's next stream comes after those of others."""
        caller = stream.open.caller
        self.remove(stream)
        if queue := self._queues.pop(caller, None):
            self._queues[caller] = queue
        self._num_inside[caller] += 1

    def let_out(self, stream: Stream) -> None:
        """Note that the slot of a stream is free again."""
        caller = stream.open.caller
        self._num_inside[caller] -= 1
        if not self._num_inside[caller]:
            del self._num_inside[caller]
