"""Limits of API keys that hold for several hosts together: sessions are leased, text is borrowed in blocks.

A thread talks to the database, and no call waits for it longer than WAIT_S. While the database is gone, the limits hold
for each host alone. Each server process writes its counts once the database is back.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from sonorant.service.access.api_keys import Caller
from sonorant.service.admission.fleet_table import LEASE_S, FleetTable
from sonorant.service.admission.ledger import Ledger
from sonorant.service.admission.limits import Limits
from sonorant.service.admission.text_budget import WINDOW_S, left, too_much
from sonorant.service.database import DatabaseGone
from sonorant.service.errors import LimitReached

log = logging.getLogger(__name__)

RENEW_S = LEASE_S / 3
RETRY_S = 1.0  # while the database is gone
WAIT_S = 1.0
BLOCKS = 20  # a block is the text of a minute, divided by this

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Session:
    caller: str
    is_counted: bool = False  # in `_counts`; written by the thread alone


class FleetLimits(Limits):
    """Belongs to an event loop. Methods named `_in_thread_...` run in the thread of the table, one after another."""

    def __init__(self, table: FleetTable, tell: Callable[[bool], None], ledger: Ledger) -> None:
        """`tell` is called with whether the database is there, each time that was checked. `ledger`: for text, while it
        is gone."""
        super().__init__(ledger)
        self._table = table
        self._tell = tell
        self._thread = ThreadPoolExecutor(1, "limits")
        self._is_there = True
        self._has_gone = asyncio.Event()  # wakes `keep`, so that it tries to reconnect sooner
        self._counts: Counter[str] = Counter()  # sessions on this server by caller; used by the thread alone
        self._borrowed: Counter[str] = Counter()  # characters left; down to minus one block, if text got longer
        self._late_s: dict[str, float] = {}  # by caller: seconds until the text fits that could not be borrowed

    async def enter(self, caller: Caller, on_call_end: Callable[[Callable[[object], None]], None]) -> None:
        limit = caller.max_sessions
        if limit is None:
            return
        session = _Session(caller.name)
        on_call_end(lambda _call: self._post(lambda: self._in_thread_uncount(session)))
        if not await self._ask(lambda: self._in_thread_count(session, limit), otherwise=True):
            raise LimitReached(
                "sessions of this key",
                f"all {limit} sessions of this API key are in use, here and on other servers; end one first",
            )

    async def prepare(self, caller: Caller, num_chars: int) -> None:
        """Borrow a block, or what is missing if that is more. If a block does not fit, borrow just what is missing."""
        per_minute = caller.max_text_chars_per_minute
        if per_minute is None or (missing := num_chars - self._borrowed[caller.name]) <= 0:
            return
        for wanted in sorted({missing, max(missing, per_minute // BLOCKS)}, reverse=True):
            late_s = await self._ask(lambda: self._table.borrow(caller.name, wanted, per_minute), otherwise=-1.0)  # noqa: B023
            self._late_s.pop(caller.name, None)
            if late_s == 0:
                self._borrowed[caller.name] += wanted
            if late_s <= 0:
                return
            self._late_s[caller.name] = late_s

    def take(self, caller: Caller, num_chars: int) -> None:
        per_minute = caller.max_text_chars_per_minute
        if per_minute is None:
            return
        if not self._is_there:
            super().take(caller, num_chars)
            return
        remaining = self._borrowed[caller.name] - num_chars
        if remaining < 0 and (late_s := self._late_s.get(caller.name)) is not None:
            raise too_much(per_minute, num_chars, late_s)
        if remaining < -(per_minute // BLOCKS):
            raise too_much(per_minute, num_chars, -remaining * WINDOW_S / per_minute)
        self._borrowed[caller.name] = remaining

    async def text_left(self, caller: Caller) -> int | None:
        per_minute = caller.max_text_chars_per_minute
        if per_minute is None:
            return None
        paid_off_s = await self._ask(lambda: self._table.paid_off_in_s(caller.name), otherwise=None)
        if paid_off_s is None:
            return await super().text_left(caller)
        return max(0, left(0.0, paid_off_s, per_minute) + self._borrowed[caller.name])

    async def keep(self) -> None:
        """Renew the leases and check whether the database is there, until cancelled."""
        while True:
            try:
                await asyncio.wrap_future(self._thread.submit(self._in_thread_renew))
                self._found(True)
            except DatabaseGone as error:
                self._found(False, error)
            self._has_gone.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(RENEW_S if self._is_there else RETRY_S):
                    await self._has_gone.wait()

    def close(self) -> None:
        """End the leases of this server. Blocks."""
        self._thread.submit(self._in_thread_leave).result()
        self._thread.shutdown()

    async def _ask(self, work: Callable[[], T], otherwise: T) -> T:
        """Run `work` in the thread and return its result, or `otherwise` while the database is gone."""
        asked = asyncio.wrap_future(self._thread.submit(work))  # it runs, even if nobody waits for the result
        asked.add_done_callback(lambda done: done.cancelled() or done.exception())  # marks an error as retrieved
        if not self._is_there:
            return otherwise
        try:
            async with asyncio.timeout(WAIT_S):
                return await asyncio.shield(asked)
        except (TimeoutError, DatabaseGone) as error:
            self._found(False, error)
            return otherwise

    def _post(self, work: Callable[[], None]) -> None:
        self._thread.submit(work)

    def _found(self, is_there: bool, error: BaseException | None = None) -> None:
        if is_there and not self._is_there:
            log.info("the database of shared limits is back: the limits hold for all servers together again")
        elif self._is_there and not is_there:
            log.error(
                "the database of shared limits is gone, the limits hold for each host alone: %s", error or "no answer"
            )
            self._has_gone.set()
        self._is_there = is_there
        self._tell(is_there)

    def _in_thread_count(self, session: _Session, limit: int) -> bool:
        fits = True  # also if the database is gone: `keep` writes the count later
        try:
            fits = self._table.lease(session.caller, self._counts[session.caller] + 1, limit)
        finally:
            session.is_counted = fits
            self._counts[session.caller] += fits
        return fits

    def _in_thread_uncount(self, session: _Session) -> None:
        if session.is_counted:
            self._counts[session.caller] -= 1
            with suppress(DatabaseGone):  # `keep` notices it, and writes the count when the database is back
                self._table.renew_one(session.caller, self._counts[session.caller])

    def _in_thread_renew(self) -> None:
        self._counts += Counter()  # drops callers without sessions
        self._table.renew(dict(self._counts))

    def _in_thread_leave(self) -> None:
        with suppress(DatabaseGone):  # then the leases expire by themselves
            self._table.renew({})
        self._table.close()
