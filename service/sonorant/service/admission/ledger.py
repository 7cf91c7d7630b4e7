"""What each caller has of all server processes of a host together, in memory that they share.

A row is a caller, found by a hash of its name: its permits by process and kind, when its text will be paid off, and
what it has used. The first row counts the permits of all callers. Changes need the lock. Each process counts its
permits in numbers of its own, so what a process had that has died can be forgotten.
"""

import time
from collections.abc import Callable, Collection
from enum import IntEnum

import numpy as np

from sonorant.engine import SharedRecord
from sonorant.service.errors import LimitReached

NUM_USES = 3  # characters, audio, clones
ROWS = 16_384  # memory is taken for those that are used
_ALL = 0  # the row of all callers, and the caller in a row that is free


class Counted(IntEnum):
    SESSIONS = 0
    UPLOADS = 1
    UTTERANCES = 2  # which have a place in the engine; it has the limit


class Ledger:
    def __init__(self, num_processes: int = 1, num_rows: int = ROWS) -> None:
        counts = (num_rows, num_processes, len(Counted))
        fields = [("callers", "u8", num_rows), ("paid_off_s", "f8", num_rows), ("counts", "i4", counts)]
        fields += [("uses", "u8", (num_rows, NUM_USES)), ("since_s", "f8", 1)]
        self.__setstate__((SharedRecord(np.dtype([("num_used", "i8", 1), *fields])), 0))
        self._num_used[0] = 1
        self._since_s[0] = time.time()

    def __setstate__(self, state: tuple[SharedRecord, int]) -> None:
        self._record, self._number = record, _ = state
        self._num_used = record.field("num_used")  # rows from here on were never used
        self._callers = record.field("callers")
        self._paid_off_s = record.field("paid_off_s")
        self._counts = record.field("counts")
        self._uses = record.field("uses")
        self._since_s = record.field("since_s")

    def of_process(self, number: int) -> "Ledger":
        """Return the same ledger, for the entries of server process `number`."""
        ledger = object.__new__(Ledger)
        ledger.__setstate__((self._record, number))
        return ledger

    def total(self, kind: Counted) -> int:
        """Return how many permits all callers have."""
        return self._sum(_ALL, kind)

    def held(self, caller: int, kind: Counted) -> int:
        """Return how many permits a caller has."""
        row = self._find(caller)
        return 0 if row is None else self._sum(row, kind)

    def holders(self, kind: Counted, at_least: int) -> Collection[int]:
        """Return the callers that have so many permits or more."""
        used = slice(1, self._num_used[0])
        callers: list[int] = self._callers[used][self._counts[used, :, kind].sum(axis=1) >= at_least].tolist()
        return set(callers)

    def take(self, caller: int, kind: Counted, check: Callable[[int, int], None]) -> int:
        """Give a caller one more permit, unless `check` raises, which is told how many all and this caller have.

        Caller 0 is nobody in particular; it has what all have. Returns the row, for `give_back`. Raises LimitReached if
        the ledger is full.
        """
        with self._record:
            row = self._find(caller)
            check(self.total(kind), 0 if row is None else self._sum(row, kind))
            if row is None:
                row = self._new_row(caller)
            self._count(row, kind, 1)
            return row

    def give_back(self, row: int, kind: Counted) -> None:
        """Give back a permit that this process has taken."""
        with self._record:
            self._count(row, kind, -1)

    def charge(self, caller: int, pay: Callable[[float, float], float]) -> None:
        """Change when a caller's text is paid off: `pay` is told the time and when it is, and returns when it will be.

        Nothing changes if it raises. Raises LimitReached if the ledger is full.
        """
        with self._record:
            row = self._find(caller)
            paid_off_s = pay(time.monotonic(), 0.0 if row is None else float(self._paid_off_s[row]))
            self._paid_off_s[self._new_row(caller) if row is None else row] = paid_off_s

    @property
    def since_s(self) -> float:
        """When this ledger was made, in seconds since 1970."""
        return float(self._since_s[0])

    def paid_off_s(self, caller: int) -> float:
        """Return when a caller's text will be paid off, on the monotonic clock."""
        row = self._find(caller)
        return 0.0 if row is None else float(self._paid_off_s[row])

    def use(self, caller: int, amounts: tuple[int, ...]) -> None:
        """Add to what a caller has used. Raises LimitReached if the ledger is full."""
        with self._record:
            row = self._find(caller)
            self._uses[self._new_row(caller) if row is None else row] += np.array(amounts, np.uint64)

    def used(self, caller: int) -> tuple[int, ...]:
        """Return what a caller has used, as the sums of what `use` was told."""
        row = self._find(caller)
        return (0,) * NUM_USES if row is None else tuple(self._uses[row].tolist())

    def clear(self, number: int) -> None:
        """Give back all permits of a server process that has ended."""
        with self._record:
            self._counts[: self._num_used[0], number] = 0

    def _sum(self, row: int, kind: Counted) -> int:
        return int(self._counts[row, :, kind].sum())

    def _count(self, row: int, kind: Counted, change: int) -> None:
        for each in {row, _ALL}:
            self._counts[each, self._number, kind] += change

    def _find(self, caller: int) -> int | None:
        """Return the row of a caller, or None; of caller 0, the one of all callers."""
        rows = np.flatnonzero(self._callers[: self._num_used[0]] == np.uint64(caller))
        return int(rows[0]) if len(rows) else None

    def _new_row(self, caller: int) -> int:
        """Return a row for a caller that has none."""
        used = slice(1, self._num_used[0])
        free = np.flatnonzero(self._callers[used] == 0)
        if not len(free) and self._num_used[0] == len(self._callers):
            idle = (self._counts[used].sum(axis=(1, 2)) == 0) & (self._paid_off_s[used] <= time.monotonic())
            self._callers[used][idle] = 0
            free = np.flatnonzero(idle)
            if not len(free):
                raise LimitReached("callers", "the server has too many callers at a time; try again later")
        row = 1 + int(free[0]) if len(free) else int(self._num_used[0])
        self._num_used[0] = max(self._num_used[0], row + 1)
        self._paid_off_s[row] = 0.0
        self._uses[row] = 0
        self._callers[row] = caller
        return row

    def fds(self) -> tuple[int, ...]:
        return self._record.fds()

    def close(self) -> None:
        self._record.close()

    def __getstate__(self) -> tuple[SharedRecord, int]:
        return self._record, self._number
