"""What a worker leaves for when it serves, so that it serves soon: done in pieces, between its steps. Pure but for the
clock."""

import time
from collections import deque
from collections.abc import Callable, Sequence

PAUSE_S = 0.1  # between two pieces; on a GPU each takes about 40 ms, in which no step runs


class DeferredWork:
    def __init__(self, pieces: Sequence[Callable[[], None]] = (), clock: Callable[[], float] = time.monotonic) -> None:
        self._pieces = deque(pieces)
        self._clock = clock
        self._due_s = clock() + PAUSE_S

    def turn(self) -> float | None:
        """Do a piece if one is due. Return in how many seconds the next one is; None: nothing is left."""
        if self._pieces and self._clock() >= self._due_s:
            self._pieces.popleft()()
            self._due_s = self._clock() + PAUSE_S
        return max(0.0, self._due_s - self._clock()) if self._pieces else None


def sooner(one_s: float | None, other_s: float | None) -> float | None:
    """The shorter of two times to wait; None is for ever."""
    return min((each for each in (one_s, other_s) if each is not None), default=None)
