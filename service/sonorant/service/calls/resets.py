"""Counts calls that are cancelled as soon as they have begun, to find who does so again and again. Pure: time is an
argument.
"""

EARLY_S = 1.0  # a call cancelled sooner than this after it has begun is counted
MOST = 50.0  # beyond this count, new calls of the line are held back
PER_S = 10.0  # how many are forgotten per second, and so how many calls per second such a line may go on with

Who = tuple[str, str]


class Resets:
    def __init__(self) -> None:
        self._of: dict[Who, tuple[float, float]] = {}  # a count, and its time; the latest is last

    def add(self, who: Who, now_s: float) -> None:
        left = self._left(who, now_s)
        self._of.pop(who, None)
        self._of[who] = (left + 1, now_s)
        while not self._left(oldest := next(iter(self._of)), now_s):
            del self._of[oldest]

    def delay_s(self, who: Who, now_s: float) -> float:
        """Return for how long a new call is held back, at least."""
        return max(0.0, self._left(who, now_s) - MOST) / PER_S

    def _left(self, who: Who, now_s: float) -> float:
        num, at_s = self._of.get(who, (0.0, now_s))
        return max(0.0, num - (now_s - at_s) * PER_S)
