"""Who has calls begun and cancels them at once, again and again. Pure: it is told the time."""

EARLY_S = 1.0  # a call that is cancelled sooner was begun in vain
MOST = 50.0  # such calls may have come lately, ...
PER_S = 10.0  # ... of which so many are forgotten each second: at this pace those who go on are let in

Who = tuple[str, str]


class Resets:
    def __init__(self) -> None:
        self._of: dict[Who, tuple[float, float]] = {}  # how many, and when that was so; who did it last is last

    def add(self, who: Who, now_s: float) -> None:
        left = self._left(who, now_s)
        self._of.pop(who, None)
        self._of[who] = (left + 1, now_s)
        while not self._left(oldest := next(iter(self._of)), now_s):
            del self._of[oldest]

    def are_many(self, who: Who, now_s: float) -> bool:
        return self._left(who, now_s) >= MOST

    def _left(self, who: Who, now_s: float) -> float:
        num, at_s = self._of.get(who, (0.0, now_s))
        return max(0.0, num - (now_s - at_s) * PER_S)
