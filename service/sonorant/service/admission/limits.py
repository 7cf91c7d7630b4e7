"""The limits of API keys that several servers may share: sessions at the same time, and text per minute."""

import time
from collections.abc import Callable

from sonorant.service.access.api_keys import Caller
from sonorant.service.admission.ledger import Ledger
from sonorant.service.admission.text_budget import left, pay


class Limits:
    """Those of a single host: `Sessions` counts the sessions already, and the ledger knows the text."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def enter(self, caller: Caller, on_call_end: Callable[[Callable[[object], None]], None]) -> None:
        """Count a session that has a permit of this host. `on_call_end` is given the function that uncounts it.

        Raises LimitReached.
        """

    async def prepare(self, caller: Caller, num_chars: int) -> None:
        """Get ready what `take` will need for this text."""

    def take(self, caller: Caller, num_chars: int) -> None:
        """Charge the text to the caller's text per minute. Raises LimitReached, and then charges nothing."""
        if (per_minute := caller.max_text_chars_per_minute) is not None:
            self._ledger.charge(caller.number, lambda now_s, paid_off_s: pay(now_s, paid_off_s, num_chars, per_minute))

    async def text_left(self, caller: Caller) -> int | None:
        """Return how many characters the caller's text per minute has left; None: it has no such limit."""
        if (per_minute := caller.max_text_chars_per_minute) is None:
            return None
        return left(time.monotonic(), self._ledger.paid_off_s(caller.number), per_minute)
