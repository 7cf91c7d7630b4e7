"""Utterances that wait for a place in the full engine.

Ranks go in order, and in a rank callers take turns, so a caller with many waiting utterances holds up no other caller.
Nor does a heavy caller, one with more places than its share: some places are kept for the others, so the first waiting
utterance of these tries as well.

Other server processes have queues of their own, so the first utterance here tries again and again. An utterance that
does not try in its turn, because its client does not read or its share of the event loop is used up, lets the next one
try.
"""

import asyncio
import time
from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum

TRY_EVERY_S = 0.02
REMEMBERED = 32  # of the latest places given, which tell how long the next ones will take
TYPICAL_UTTERANCE_S = 5.0  # how long a place is taken, as long as none was given


class Rank(IntEnum):
    GOES_ON = 0  # somebody is listening already
    NEW = 1
    BACKGROUND = 2


@dataclass(order=True, slots=True)
class Ticket:
    """A place in the queue, ordered by who goes first."""

    rank: Rank
    turn: int  # of the caller
    number: int
    caller: int = field(compare=False)
    may_try: asyncio.Event = field(compare=False, default_factory=asyncio.Event)


class PlaceQueue:
    """Belongs to one event loop."""

    def __init__(
        self, heavy: Callable[[], Collection[int]] = tuple, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`heavy` tells which callers have so many places now that they must leave some free."""
        self._heavy = heavy
        self._clock = clock
        self.tickets: list[Ticket] = []  # in order
        self._num_joined = 0
        self._turns = dict.fromkeys(Rank, 0)  # of the one served last, by rank
        self._turn_of: dict[tuple[Rank, int], int] = {}  # the latest turn of each caller that waits
        self._num_of: Counter[tuple[Rank, int]] = Counter()  # how many tickets each of them has
        self._served_s: deque[float] = deque(maxlen=REMEMBERED)
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self.tickets)

    def num_ahead(self, ticket: Ticket) -> int:
        return bisect_left(self.tickets, ticket)

    def num_ahead_of_newcomer(self, rank: Rank, caller: int) -> int:
        """Return how many waiting utterances go ahead of a new one, which must leave as many places free.

        Utterances of heavy callers do not count if the new one's caller is not heavy: it takes a place that is kept for
        callers with few.
        """
        ahead = self.tickets[: self.num_ahead(self._new_ticket(rank, caller))]
        heavy = self._heavy() if ahead else ()
        return len(ahead) if caller in heavy else sum(ticket.caller not in heavy for ticket in ahead)

    def expected_wait_s(self, num_ahead: int, num_places: int) -> float:
        """Return how long an utterance waits that has so many ahead, by how quickly the latest places were given."""
        if len(self._served_s) < 2:
            return TYPICAL_UTTERANCE_S * (num_ahead + 1) / num_places
        now = self._clock()
        pace_s = max(self._served_s[-1] - self._served_s[0], now - self._served_s[-1]) / (len(self._served_s) - 1)
        return pace_s * (num_ahead + 1)

    @contextmanager
    def ticket(self, rank: Rank, caller: int) -> Iterator[Ticket]:
        """Wait in the queue inside the block. A ticket that got a place is given to `served`."""
        ticket = self._new_ticket(rank, caller)
        self._num_joined += 1
        self._turn_of[rank, caller] = ticket.turn
        self._num_of[rank, caller] += 1
        insort(self.tickets, ticket)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TRY_EVERY_S, self._try)
        try:
            yield ticket
        finally:
            place = self.num_ahead(ticket)
            if place < len(self.tickets) and self.tickets[place] is ticket:  # else it was served
                self._leave(ticket)

    def served(self, ticket: Ticket) -> None:
        """Note that it got its place. The next one tries at once: there may be more."""
        self._served_s.append(self._clock())
        self._turns[ticket.rank] = max(self._turns[ticket.rank], ticket.turn)
        self._leave(ticket)
        self._let_try()

    def _new_ticket(self, rank: Rank, caller: int) -> Ticket:
        turn = max(self._turns[rank], self._turn_of.get((rank, caller), -1) + 1)
        return Ticket(rank, turn, self._num_joined, caller)

    def _leave(self, ticket: Ticket) -> None:
        del self.tickets[self.num_ahead(ticket)]
        who = ticket.rank, ticket.caller
        self._num_of[who] -= 1
        if not self._num_of[who]:
            del self._num_of[who], self._turn_of[who]

    def _try(self) -> None:
        self._let_try()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(TRY_EVERY_S, self._try) if self.tickets else None

    def _let_try(self) -> None:
        """Let the first one of heavy callers try, and the first one of the others."""
        idle = [ticket for ticket in self.tickets if not ticket.may_try.is_set()]
        heavy = self._heavy() if idle else ()
        for is_heavy in (True, False):
            if first := next((ticket for ticket in idle if (ticket.caller in heavy) is is_heavy), None):
                first.may_try.set()
