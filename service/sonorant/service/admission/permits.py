"""Permits of one kind, of which there are so many for all server processes of a host together.

Each caller may have most of them; the last ones are kept for callers who have few.
"""

from collections.abc import Callable

from sonorant.engine import Shares
from sonorant.service.access.api_keys import Caller
from sonorant.service.admission.ledger import Counted, Ledger
from sonorant.service.errors import LimitReached

KEPT = 4  # one permit in 4 is kept for callers who have few
RESERVE = 8  # one more permit per 8, beyond the limit, for calls that another server began and that must go on now


class Permit:
    """Travels with the work that it is for. The code that drops the work gives it back; to do so twice does no harm."""

    __slots__ = ("_give_back",)

    def __init__(self, give_back: Callable[[], None]) -> None:
        self._give_back: Callable[[], None] | None = give_back

    def give_back(self, _call: object = None) -> None:
        """`_call`: the task of a call that has ended."""
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.give_back()


class Permits:
    def __init__(self, kind: Counted, limit: int, num_callers: Callable[[], int], ledger: Ledger) -> None:
        """`num_callers`: how many callers share the permits; with 1, none of them are kept."""
        self._kind = kind
        self._name = kind.name.lower()  # for messages
        self._limit = limit
        self._num_callers = num_callers
        self._ledger = ledger

    def limit(self, caller: Caller, own_limit: int | None) -> int:
        """Return how many permits a caller with this limit may have at the same time while nobody else has any."""
        limit = max(self._limit - self._shares.kept, self._shares.fair) if caller.limit_key else self._limit
        return limit if own_limit is None else min(limit, own_limit)

    def take(self, caller: Caller, own_limit: int | None = None, *, resuming: bool = False) -> Permit:
        """Take a permit. Raises LimitReached. `own_limit`: the limit of the caller's key, or None.

        `resuming`: the call says that it goes on behind another one. It may use the reserve. A caller with many permits
        then leaves half as many to others, and not none, as any caller can say that it resumes.
        """
        kind, limit, shares = self._name, self._limit, self._shares

        def check(num_taken: int, num_held: int) -> None:
            if own_limit is not None and num_held >= own_limit:
                raise LimitReached(
                    f"{kind} of this key", f"all {own_limit} {kind} of this API key are in use; end one first"
                )
            if num_taken >= limit + (max(1, limit // RESERVE) if resuming else 0):
                raise LimitReached(kind, f"all {limit} {kind} are taken; try again later")
            if caller.limit_key and shares.kept and not shares.leaves_enough(1, num_held, limit - num_taken):
                who = "API key" if caller.name else "address"
                raise LimitReached(
                    f"{kind} of this {'key' if caller.name else who}",
                    f"{num_taken} of {limit} {kind} are taken, {num_held} of them by this {who}; the last ones "
                    "are kept for others. End one first, or try again later",
                )

        if resuming:
            shares = Shares(shares.fair, shares.kept // 2)
        row = self._ledger.take(caller.number, self._kind, check)
        return Permit(lambda: self._ledger.give_back(row, self._kind))

    @property
    def _shares(self) -> Shares:
        num_callers = self._num_callers()
        return Shares(max(1, self._limit // num_callers), self._limit // KEPT if num_callers > 1 else 0)
