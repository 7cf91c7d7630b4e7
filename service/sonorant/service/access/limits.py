"""The limits of API keys that may be shared by several servers: sessions at the same time, and text per minute."""

from collections.abc import Callable
from typing import Protocol

from sonorant.service.access.api_keys import Caller
from sonorant.service.access.text_budget import TextBudget


class Limits(Protocol):
    async def enter(self, caller: Caller, on_call_end: Callable[[Callable[[object], None]], None]) -> None:
        """Count a session that has a place on this server. `on_call_end` is given the function that uncounts it.

        Raises LimitReached.
        """

    async def prepare(self, caller: Caller, num_chars: int) -> None:
        """Get ready what `take` will need for this text."""

    def take(self, caller: Caller, num_chars: int) -> None:
        """Charge the text to the caller's text per minute. Raises LimitReached, and then charges nothing."""


class OwnLimits:
    """The limits of a single server: `Admission` counts the sessions already, and the text budget is kept here."""

    def __init__(self) -> None:
        self._text = TextBudget()

    async def enter(self, caller: Caller, on_call_end: Callable[[Callable[[object], None]], None]) -> None:
        pass

    async def prepare(self, caller: Caller, num_chars: int) -> None:
        pass

    def take(self, caller: Caller, num_chars: int) -> None:
        self._text.take(caller, num_chars)
