"""Places of one kind, so many at a time: anybody may take most of them, the last ones are for callers who have few."""

from collections import Counter
from collections.abc import Callable

from sonorant.service.access.api_keys import Caller
from sonorant.service.errors import LimitReached

KEPT = 4  # one in so many
RESERVE = 8  # one for so many places, beyond them: for what was begun elsewhere and has to go on now


class Places:
    """One owner on one event loop."""

    def __init__(self, kind: str, limit: int, num_callers: Callable[[], int]) -> None:
        """`kind` as in "sessions"; `num_callers`: who could come, each of whom is kept room for; 1 = all are one."""
        self.num_taken = 0
        self._kind = kind
        self._limit = limit
        self._num_callers = num_callers
        self._of_caller: Counter[str] = Counter()

    def limit(self, caller: Caller, own_limit: int | None) -> int:
        """How many a caller with this limit may have at the same time, if nobody else has any."""
        limit = max(self._limit - self._num_kept, self._share) if caller.counted_as else self._limit
        return limit if own_limit is None else min(limit, own_limit)

    def enter(self, caller: Caller, own_limit: int | None = None, *, resuming: bool = False) -> Callable[[], None]:
        """Take a place; the returned function, to be called once, gives it back. Raises LimitReached.

        `own_limit`: what the caller's key is for; None = no limit of its own. `resuming`: it may be of the reserve.
        """
        own, kind = self._of_caller[caller.counted_as], self._kind
        if own_limit is not None and own >= own_limit:
            raise LimitReached(
                f"{kind} of this key", f"all {own_limit} {kind} of this API key are in use; end one first"
            )
        reserve = max(1, self._limit // RESERVE) if resuming else 0
        if self.num_taken >= self._limit + reserve:
            raise LimitReached(kind, f"all {self._limit} {kind} are taken; try again later")
        is_many = bool(caller.counted_as) and own >= self._share
        if is_many and not resuming and self.num_taken >= self._limit - self._num_kept:
            who = "API key" if caller.name else "address"
            raise LimitReached(
                f"{kind} of this {'key' if caller.name else who}",
                f"{self.num_taken} of {self._limit} {kind} are taken, {own} of them by this {who}, and the last ones "
                "are kept for others; end one first, or try again later",
            )
        self.num_taken += 1
        self._of_caller[caller.counted_as] += 1

        def leave() -> None:
            self.num_taken -= 1
            self._of_caller[caller.counted_as] -= 1
            if self.num_taken == 0:
                self._of_caller.clear()  # names that are no longer in the file go with it

        return leave

    @property
    def _share(self) -> int:
        """What everybody could have at the same time."""
        return max(1, self._limit // self._num_callers())

    @property
    def _num_kept(self) -> int:
        return self._limit // KEPT if self._num_callers() > 1 else 0
