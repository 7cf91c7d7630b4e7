"""How much text each caller may send per minute, whatever calls it comes in. Pure but for the clock."""

import time
from collections.abc import Callable

from sonorant.service.access.api_keys import Caller
from sonorant.service.errors import LimitReached

WINDOW_S = 60.0


class TextBudget:
    """A minute's text may come at once; what was sent is paid off evenly. Bounded by the number of callers."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._paid_off_s: dict[str, float] = {}  # when all that a caller has sent will be

    def take(self, caller: Caller, num_chars: int) -> None:
        """Raises LimitReached, and takes nothing, while too much is not paid off.

        What is longer than a minute's never fits. `Caller.text_limit` refuses such a text before it gets here, but not
        what pronunciations make of one.
        """
        per_minute = caller.max_text_chars_per_minute
        if per_minute is None:
            return
        if num_chars > per_minute:
            raise LimitReached(
                "text of this key",
                f"this API key is for {per_minute} characters of text per minute, as they are spoken; these are "
                f"{num_chars} at once, with their pronunciations: send less, or shorten those",
            )
        now_s = self._clock()
        paid_off_s = max(now_s, self._paid_off_s.get(caller.name, now_s)) + num_chars * WINDOW_S / per_minute
        late_s = round(paid_off_s - WINDOW_S - now_s, 6)  # what fits exactly does fit
        if late_s > 0:
            raise too_much(per_minute, num_chars, late_s)
        self._paid_off_s = {name: end_s for name, end_s in self._paid_off_s.items() if end_s > now_s}
        self._paid_off_s[caller.name] = paid_off_s


def too_much(per_minute: int, num_chars: int, late_s: float) -> LimitReached:
    return LimitReached(
        "text of this key",
        f"this API key is for {per_minute} characters of text per minute; these {num_chars} are due in {late_s:.1f} s",
        retry_s=late_s,
    )
