"""How much text each caller may send per minute, over all its calls. Pure but for the clock."""

import time
from collections.abc import Callable

from sonorant.service.access.api_keys import Caller
from sonorant.service.errors import LimitReached

WINDOW_S = 60.0


class TextBudget:
    """The text of a minute may come at once, and is paid off evenly. Memory is bounded by the number of callers."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._paid_off_s: dict[str, float] = {}  # by caller: when all text sent so far will be paid off

    def take(self, caller: Caller, num_chars: int) -> None:
        """Charge a text to the caller. Raises LimitReached, and charges nothing, while too much is not paid off.

        A text longer than a minute's never fits. `Caller.text_limit` refuses such texts earlier, but pronunciations may
        make a text longer after that.
        """
        per_minute = caller.max_text_chars_per_minute
        if per_minute is None:
            return
        if num_chars > per_minute:
            raise LimitReached(
                "text of this key",
                f"this API key allows {per_minute} characters of text per minute, counted with their pronunciations; "
                f"this text has {num_chars}: send less, or shorten the pronunciations",
            )
        now_s = self._clock()
        paid_off_s = max(now_s, self._paid_off_s.get(caller.name, now_s)) + num_chars * WINDOW_S / per_minute
        late_s = round(paid_off_s - WINDOW_S - now_s, 6)  # rounded, so that a text that fits exactly is not refused
        if late_s > 0:
            raise too_much(per_minute, num_chars, late_s)
        self._paid_off_s = {name: end_s for name, end_s in self._paid_off_s.items() if end_s > now_s}
        self._paid_off_s[caller.name] = paid_off_s


def too_much(per_minute: int, num_chars: int, late_s: float) -> LimitReached:
    return LimitReached(
        "text of this key",
        f"this API key allows {per_minute} characters of text per minute; send these {num_chars} in {late_s:.1f} s",
        retry_s=late_s,
    )
