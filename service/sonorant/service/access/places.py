"""A limited number of places of one kind. Anyone may take most of them; the last are kept for callers who have few."""

from collections import Counter
from collections.abc import Callable

from sonorant.service.access.api_keys import Caller
from sonorant.service.errors import LimitReached

KEPT = 4  # one place in 4 is kept for callers who have few
RESERVE = 8  # one more place per 8, beyond the limit, for calls that another server began and that must go on now


class Places:
    """Belongs to one event loop."""

    def __init__(self, kind: str, limit: int, num_callers: Callable[[], int]) -> None:
        """`kind`: for messages, such as "sessions". `num_callers`: how many callers share the places; with 1, none of
        them are kept.
        """
        self.num_taken = 0
        self._kind = kind
        self._limit = limit
        self._num_callers = num_callers
        self._of_caller: Counter[str] = Counter()

    def limit(self, caller: Caller, own_limit: int | None) -> int:
        """Return how many places a caller with this limit may have at the same time while nobody else has any."""
        limit = max(self._limit - self._num_kept, self._share) if caller.limit_key else self._limit
        return limit if own_limit is None else min(limit, own_limit)

    def enter(self, caller: Caller, own_limit: int | None = None, *, resuming: bool = False) -> Callable[[], None]:
        """Take a place and return the function that gives it back, to be called once. Raises LimitReached.

        `own_limit`: the limit of the caller's key, or None. `resuming`: may use the reserve, and with many places half
        of what is kept for others.
        """
        own, kind = self._of_caller[caller.limit_key], self._kind
        if own_limit is not None and own >= own_limit:
            raise LimitReached(
                f"{kind} of this key", f"all {own_limit} {kind} of this API key are in use; end one first"
            )
        reserve = max(1, self._limit // RESERVE) if resuming else 0
        if self.num_taken >= self._limit + reserve:
            raise LimitReached(kind, f"all {self._limit} {kind} are taken; try again later")
        is_many = bool(caller.limit_key) and own >= self._share
        kept = self._num_kept // 2 if resuming else self._num_kept  # anyone can say that they resume
        if is_many and kept and self.num_taken >= self._limit - kept:
            who = "API key" if caller.name else "address"
            raise LimitReached(
                f"{kind} of this {'key' if caller.name else who}",
                f"{self.num_taken} of {self._limit} {kind} are taken, {own} of them by this {who}; the last ones "
                "are kept for others. End one first, or try again later",
            )
        self.num_taken += 1
        self._of_caller[caller.limit_key] += 1

        def leave() -> None:
            self.num_taken -= 1
            self._of_caller[caller.limit_key] -= 1
            if self.num_taken == 0:
                self._of_caller.clear()  # so that names that left the file of keys do not pile up

        return leave

    @property
    def _share(self) -> int:
        """How many places each caller could have if all had the same number."""
        return max(1, self._limit // self._num_callers())

    @property
    def _num_kept(self) -> int:
        return self._limit // KEPT if self._num_callers() > 1 else 0
