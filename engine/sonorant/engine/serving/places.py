"""How many places of a worker pair each caller has. Pure.

A stream without text lends its slot to others, and rests meanwhile without a place. It takes one again when it has
text. A caller may have far more resting streams than there are places, so it may not take all that is left with them.
"""

from collections import Counter

from sonorant.engine.serving.keeping import KeptStream
from sonorant.engine.shares import Shares


class Places:
    """Of the streams of one server process at one pair: places of the talker, and others for stored codes."""

    def __init__(self) -> None:
        self.resting: set[KeptStream] = set()
        self.num_taken = 0  # without those for stored codes
        self.num_stored = 0
        self._of_caller: Counter[int] = Counter()

    def take(self, stream: KeptStream) -> None:
        if stream.is_stored:
            self.num_stored += 1
            return
        self.resting.discard(stream)
        self._of_caller[stream.caller] += 1
        self.num_taken += 1

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
        self.num_taken -= 1
        if not self._of_caller[stream.caller]:
            del self._of_caller[stream.caller]

    def num_spared(self, stream: KeptStream, num_all: int) -> int:
        """Return how many of all places must stay free when this stream takes one.

        For new streams, the service has seen to that.
        """
        shares = Shares.of_engine(num_all)
        if stream.is_background:
            return shares.kept
        is_anyones = not stream.caller or stream not in self.resting
        return 0 if is_anyones else shares.to_leave(self._of_caller[stream.caller] + 1)
