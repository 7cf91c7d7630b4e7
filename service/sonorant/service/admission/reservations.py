"""Places in the engine. An utterance that has begun keeps its place between two of its streams.

Each sentence and each flush has its own stream. If the place were not kept, a begun utterance would compete with new
ones at each of them, and break off in the middle when the engine is full. Also, a caller with many utterances leaves
some places to callers with few. The engine does the same with slots and KV pages.
"""

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from copy import copy

from sonorant.engine import EngineOverloaded, EnginePool, EngineStream, Int16Array, PromptLayout, SynthesisParams
from sonorant.service.access.api_keys import Caller
from sonorant.service.admission.ledger import Counted, Ledger
from sonorant.service.admission.permits import Permit
from sonorant.service.admission.queue import PlaceQueue, Rank, Ticket

FOR_OTHERS = 8  # one place in 8; a smaller share than of sessions, as a free place is speech not made
TELL_EVERY_S = 1.0

Tell = Callable[[int, float], Awaitable[None]]  # how many utterances go ahead, and the seconds that it may take


class Reservations:
    """The places of all utterances of this server process, seen by one caller."""

    def __init__(self, engine: EnginePool, ledger: Ledger, num_callers: Callable[[], int] = lambda: 1) -> None:
        """`num_callers`: see `Permits`."""
        self.caller = 0  # see `Caller.number`; 0 may take all places
        self.engine = engine
        # By checkpoint: utterances that wait for a full checkpoint are not in the way of utterances for another.
        self.queues: defaultdict[str, PlaceQueue] = defaultdict(lambda: PlaceQueue(self._heavy))
        self._ledger = ledger
        self._num_callers = num_callers
        self.num_kept: Counter[str] = Counter()  # places by checkpoint, while the next stream is not open

    def of(self, caller: Caller) -> "Reservations":
        seen = copy(self)
        seen.caller = caller.number
        return seen

    @property
    def caller_for_engine(self) -> int:
        """The caller, or 0 if callers are not told apart."""
        return self.caller if self._num_callers() > 1 else 0

    @property
    def num_waiting(self) -> int:
        return sum(map(len, self.queues.values()))

    def enter(self) -> Permit:
        """Count an utterance of this caller, in all server processes."""
        row = self._ledger.take(self.caller, Counted.UTTERANCES, lambda num_all, num_own: None)
        return Permit(lambda: self._ledger.give_back(row, Counted.UTTERANCES))

    def keep(self, checkpoint: str) -> Permit:
        """Keep one more place from new utterances of this process and of all others."""
        self._keep(checkpoint, +1)
        return Permit(lambda: self._keep(checkpoint, -1))

    def _keep(self, checkpoint: str, change: int) -> None:
        self.num_kept[checkpoint] += change
        self.engine.keep_places(checkpoint, change)

    @property
    def is_heavy(self) -> bool:
        """Whether one more utterance of this caller would be more than an even share."""
        return bool(self.caller_for_engine) and self._ledger.held(self.caller, Counted.UTTERANCES) >= self._even_share

    def _heavy(self) -> Collection[int]:
        return self._ledger.holders(Counted.UTTERANCES, self._even_share) if self._num_callers() > 1 else ()

    @property
    def _even_share(self) -> int:
        return max(1, self.engine.info.max_streams // self._num_callers())


class Reservation:
    """The place of one utterance, from its first stream until it is given up."""

    def __init__(
        self,
        reservations: Reservations,
        checkpoint: str,
        *,
        resumed: bool = False,
        follows: bool = False,
        is_background: bool = False,
    ) -> None:
        """`checkpoint`: the fingerprint of the one that speaks.

        `resumed`: begun by another session, so it goes ahead of new utterances. Any caller can claim that, so it does
        not help a heavy caller. `follows`: its session had others before, so it goes ahead in the same way. Both wait
        for workers that are being replaced. `is_background`: nobody listens to it.
        """
        self._all = reservations
        self._checkpoint = checkpoint
        self._queue = reservations.queues[checkpoint]
        self._resumed = resumed
        self._follows = follows
        self._is_background = is_background
        self._ticket: Ticket | None = None  # while it waits for a place
        self._permit: Permit | None = None  # from its first stream on
        self._stream: EngineStream | None = None  # the latest stream, until it ends
        self._kept: Permit | None = None  # the place, until the next stream is open

    def open(
        self,
        params: SynthesisParams,
        credit_frames: int,
        known_codes: Int16Array | None = None,
        prompt: PromptLayout | None = None,
    ) -> EngineStream:
        """Open a stream. Raises EngineUnavailable, what `check` raises, and for the first stream EngineOverloaded.

        `prompt`: see `Engine.open`.
        """
        is_kept, caller = self._kept is not None, self._all.caller_for_engine
        is_heavy = bool(caller) and self._all.is_heavy
        num_ahead = 0 if is_kept else self._num_ahead(is_heavy)
        spare = 0 if is_kept else num_ahead + self._num_for_others(is_heavy)
        permit = self._all.enter() if caller else Permit(_uncounted)
        try:
            stream = self._all.engine.open(
                params,
                credit_frames,
                known_codes,
                prompt=prompt,
                spare=spare,
                waits=self._follows or self._resumed or is_kept,
                caller=caller,
                in_turn=self._resumed and not is_kept and is_heavy,
                background=self._is_background,
            )
        except BaseException as error:
            permit.give_back()
            if isinstance(error, EngineOverloaded):
                error.retry_s = self._expected_wait_s(num_ahead)
            raise
        if self._ticket is not None:
            self._queue.served(self._ticket)
        if self._permit is not None or is_kept:
            self.give_up()
        self._permit, self._stream = permit, stream
        stream.when_ended = self._keep
        return stream

    async def open_in_turn(self, open_stream: Callable[[], Awaitable[None]], wait_s: float, tell: Tell | None) -> None:
        """Have `open_stream` called as soon as there is a place, from which it calls `open`.

        Raises EngineOverloaded if there is no place within `wait_s`, and what `open_stream` raises for other reasons.
        `tell`: tells the client now and then how long it may take.
        """
        now_s = asyncio.get_running_loop().time
        latest_s, tell_s = now_s() + wait_s, now_s() if tell else math.inf
        with self._queue.ticket(self._rank(self._all.is_heavy), self._all.caller) as ticket:
            self._ticket = ticket
            try:
                while now_s() < latest_s:
                    if tell is not None and now_s() >= tell_s:
                        await tell(*self._position(ticket))
                        tell_s = now_s() + TELL_EVERY_S
                    with suppress(TimeoutError):
                        async with asyncio.timeout_at(min(latest_s, tell_s)):
                            await ticket.may_try.wait()
                    if ticket.may_try.is_set():
                        ticket.may_try.clear()
                        with suppress(EngineOverloaded):
                            await open_stream()
                            return
                error = EngineOverloaded(f"no stream became free within {wait_s:.3g} s; try again later")
                error.retry_s = self._position(ticket)[1]
                raise error
            finally:
                self._ticket = None

    def give_up(self) -> None:
        stream, self._stream = self._stream, None
        if self._kept is not None:
            self._kept.give_back()
            self._kept = None
        if self._permit is not None:
            permit, self._permit = self._permit, None
            if stream is None:
                permit.give_back()
            else:  # a cancelled stream takes its place until the workers have ended it
                stream.when_ended = permit.give_back

    def pass_on(self, other: "Reservation") -> None:
        """Give the place that is kept here to another utterance of the session, which has none yet."""
        if self._kept is not None and other._permit is None and other._kept is None:
            self._kept, other._kept = None, self._kept

    def _keep(self) -> None:
        self._stream, self._kept = None, self._all.keep(self._checkpoint)

    def _num_ahead(self, is_heavy: bool) -> int:
        """How many waiting utterances go before this one, if it comes without having waited."""
        if self._ticket is not None or not self._queue.tickets:
            return 0
        return self._queue.num_ahead_of_newcomer(self._rank(is_heavy), self._all.caller)

    def _num_for_others(self, is_heavy: bool) -> int:
        """How many places a new utterance leaves free: those that are kept, and the share of other callers."""
        must_share = is_heavy or self._is_background
        share = self._all.engine.info.max_streams // FOR_OTHERS if must_share else 0
        return self._all.num_kept[self._checkpoint] + share

    def _rank(self, is_heavy: bool) -> Rank:
        if self._is_background:
            return Rank.BACKGROUND
        return Rank.GOES_ON if (self._resumed or self._follows) and not is_heavy else Rank.NEW

    def _position(self, ticket: Ticket) -> tuple[int, float]:
        num_ahead = self._queue.num_ahead(ticket)
        return num_ahead, self._expected_wait_s(num_ahead)

    def _expected_wait_s(self, num_ahead: int) -> float:
        return self._queue.expected_wait_s(num_ahead, self._all.engine.info.max_streams)


def _uncounted() -> None:
    """Give nothing back: callers who are not told apart are not counted."""
