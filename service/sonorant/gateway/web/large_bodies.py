"""Limits how many large bodies are read at the same time, of all callers together and of each. Pure."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from sonorant.gateway.errors import Refusal

MAX_LARGE_BODIES = 16


class LargeBodies:
    def __init__(self) -> None:
        self._held: Counter[str] = Counter()  # by caller

    @contextmanager
    def place(self, caller: str) -> Iterator[None]:
        """Hold a place while a large body of this caller is read. Raises Refusal if the caller has as many as are free:
        so there is always one for the next caller, until four callers have nearly all."""
        free = MAX_LARGE_BODIES - self._held.total()
        if self._held[caller] >= free:
            message = f"{self._held.total()} large bodies are being read already; send it again soon"
            raise Refusal(429, message, code="too_many_large_bodies", retry_after_s=1.0)
        self._held[caller] += 1
        try:
            yield
        finally:
            self._held[caller] -= 1
            if not self._held[caller]:
                del self._held[caller]
