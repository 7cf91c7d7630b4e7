"""What keys may have in use at the same time and per minute, beyond what one server can count."""

from collections.abc import Callable
from typing import Protocol

from sonorant.service.access.api_keys import Caller
from sonorant.service.access.text_budget import TextBudget


class Limits(Protocol):
    async def enter(self, caller: Caller, when_over: Callable[[Callable[[object], None]], None]) -> None:
        """Count a session that has its place here; `when_over` is given what uncounts it. Raises LimitReached."""

    async def prepare(self, caller: Caller, num_chars: int) -> None:
        """Have ready what `take` will need."""

    def take(self, caller: Caller, num_chars: int) -> None:
        """Of the caller's text per minute. Raises LimitReached, and takes nothing."""


class OwnLimits:
    """Of a server by itself: the places have been counted, and the budget is all here."""

    def __init__(self) -> None:
        self._text = TextBudget()

    async def enter(self, caller: Caller, when_over: Callable[[Callable[[object], None]], None]) -> None:
        pass

    async def prepare(self, caller: Caller, num_chars: int) -> None:
        pass

    def take(self, caller: Caller, num_chars: int) -> None:
        self._text.take(caller, num_chars)
