"""Who has how many places of a worker pair. Pure.

A stream without text lends its slot to others, and rests meanwhile without a place. It takes one again when it has
text. A caller may have far more resting streams than there are places, so it may not take all that is left with them.
"""

from collections import Counter

from sonorant.engine.serving.keeping import KeptStream

# A caller who would have more than one in HEAVY_SHARE of the places with a stream that has rested leaves one in
# RESERVED_SHARE to others, as it does when it opens one. The talker shares out its slots likewise. Batch streams always
# leave as many.
HEAVY_SHARE = 2
RESERVED_SHARE = 8


class Places:
    """Of the streams of one front at one pair: places of the talker, and others for stored codes."""

    def __init__(self) -> None:
        self.resting: set[KeptStream] = set()
        self.num_stored = 0
        self._of_caller: Counter[int] = Counter()

    @property
    def num_taken(self) -> int:
        """Without those for stored codes."""
        return self._of_caller.total()

    def take(self, stream: KeptStream) -> None:
        if stream.is_stored:
            self.num_stored += 1
            return
        self.resting.discard(stream)
        self._of_caller[stream.caller] += 1

    def rest(self, stream: KeptStream) -> None:
        self.leave(stream)
        self.resting.add(stream)

    def leave(self, stream: KeptStream) -> None:
        if stream.is_stored:
            self.num_stored -= 1
            return
        if stream in self.resting:
            self.resting.discard(stream)
            return
        self._of_caller[stream.caller] -= 1
        if not self._of_caller[stream.caller]:
            del self._of_caller[stream.caller]

    def num_spared(self, stream: KeptStream, num_all: int) -> int:
        """Return how many of all places must stay free when this stream takes one."""
        if stream.is_batch:
            return num_all // RESERVED_SHARE
        is_heavy = self._of_caller[stream.caller] + 1 > num_all // HEAVY_SHARE
        return num_all // RESERVED_SHARE if stream.caller and is_heavy and stream in self.resting else 0
