"""The page pool: which KV pages are leased, and what those hold that prompts share. Pure numbers and keys; the storage
behind them belongs to the KV cache.

A page is free, leased by one stream or several, or kept: nobody leases it, and what it holds may serve a stream to
come. Kept pages are as good as free ones, and those that were not needed for the longest time go first.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Lease(NamedTuple):
    pages: tuple[int, ...]
    num_shared: int  # the first so many hold what was asked for and must not be written


class PagePool:
    """Pages 0 .. num_pages - 1, each of `page_size` positions. A lease covers a stream's whole need and never grows."""

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.num_pages = num_pages
        self.page_size = page_size
        self._free = list(reversed(range(num_pages)))
        self._num_leases = np.zeros(num_pages, np.int32)  # of each page
        self._kept: dict[int, None] = {}  # in the order in which they were given back
        self._page_of: dict[bytes, int] = {}  # what leased and kept pages hold
        self._key_of: dict[int, bytes] = {}

    @property
    def num_free(self) -> int:
        """Those that a lease can get, kept ones included."""
        return len(self._free) + len(self._kept)

    @property
    def num_leases(self) -> int:
        """A page that is leased twice counts twice."""
        return int(self._num_leases.sum())

    def pages_for(self, num_positions: int) -> int:
        return -(-num_positions // self.page_size)

    def lease(self, count: int, keys: Sequence[bytes] = ()) -> Lease | None:
        """`count` pages, beginning with those that hold the content of `keys`, as many as there are without a gap.

        None if there are too few.
        """
        shared: list[int] = []
        for key in keys:
            if (page := self._page_of.get(key)) is None:
                break
            shared.append(page)
        num_new = count - len(shared)
        if num_new > self.num_free - sum(page in self._kept for page in shared):
            return None
        for page in shared:
            self._kept.pop(page, None)
        while len(self._free) < num_new:
            self._forget_oldest()
        cut = len(self._free) - num_new
        pages = (*shared, *reversed(self._free[cut:]))
        del self._free[cut:]
        self._num_leases[list(pages)] += 1
        return Lease(pages, len(shared))

    def share(self, page: int, key: bytes) -> None:
        """This leased page holds the content of `key` and is not written any more."""
        if not self._num_leases[page]:
            raise RuntimeError(f"KV page {page} was to be shared without a lease")
        if key not in self._page_of:  # else another stream was quicker
            self._page_of[key] = page
            self._key_of[page] = key

    def give_back(self, pages: Sequence[int]) -> None:
        num_leases = self._num_leases[list(pages)]
        if not num_leases.all():
            raise RuntimeError(f"KV page {pages[int(num_leases.argmin())]} was given back without a lease")
        self._num_leases[list(pages)] -= 1
        # The end of a prefix is of no use without its beginning, so it may be forgotten first.
        for page, is_last in zip(reversed(pages), reversed((num_leases == 1).tolist()), strict=True):
            if not is_last:
                continue
            if page in self._key_of:
                self._kept[page] = None
            else:
                self._free.append(page)

    def _forget_oldest(self) -> None:
        page = next(iter(self._kept))
        del self._kept[page]
        del self._page_of[self._key_of.pop(page)]
        self._free.append(page)

    def check_conservation(self) -> None:
        """Each page is free, leased or kept, and what is kept has a key. Raises if that does not hold."""
        num_leased = np.count_nonzero(self._num_leases)
        if num_leased + len(self._free) + len(self._kept) != self.num_pages:
            raise RuntimeError(
                f"pages leaked: {num_leased} leased, {len(self._kept)} kept and {len(self._free)} free "
                f"of {self.num_pages}"
            )
        if len(self._page_of) != len(self._key_of) or not self._kept.keys() <= self._key_of.keys():
            raise RuntimeError(
                f"{len(self._page_of)} keys for {len(self._key_of)} pages, {len(self._kept)} of them kept"
            )
