"""The page pool: which KV pages are leased, and which prompts' rows are in those that can be shared. Knows only numbers
and keys; the KV cache owns the storage.

A page is free, leased by one stream or several, or kept. A kept page has no lease, but a later stream may use its
content. Kept pages count as free: when free ones run out, those kept for the longest time are used first.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

NO_LEASES: Mapping[int, int] = {}


class Lease(NamedTuple):
    pages: tuple[int, ...]
    num_shared: int  # so many of the first pages hold the content of the keys, and must not be written


class PagePool:
    """Pages 0 .. num_pages - 1, each of `page_size` positions. A stream may have several leases."""

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.num_pages = num_pages
        self.page_size = page_size
        self._free = list(reversed(range(num_pages)))
        self._num_leases = np.zeros(num_pages, np.int32)  # of each page
        self._kept: dict[int, None] = {}  # in the order in which they were given back
        self._page_of: dict[bytes, int] = {}  # by the key of their content; leased and kept pages
        self._key_of: dict[int, bytes] = {}

    @property
    def num_free(self) -> int:
        """How many pages a lease can get, kept ones included."""
        return len(self._free) + len(self._kept)

    def num_free_without(self, leases: Mapping[int, int]) -> int:
        """How many pages a lease could get if there were not these leases, so many by page."""
        return self.num_free + sum(self._has_only(page, leases) for page in leases)

    @property
    def num_leases(self) -> int:
        """The number of leases over all pages; a page that is leased twice counts twice."""
        return int(self._num_leases.sum())

    def pages_for(self, num_positions: int) -> int:
        return -(-num_positions // self.page_size)

    def num_new(self, count: int, keys: Sequence[bytes] = (), without: Mapping[int, int] = NO_LEASES) -> int:
        """Return how many of the free pages, kept ones included, such a lease takes once `without` are given back."""
        shared = self._shared(keys)
        return self._num_new(count, shared) + sum(self._has_only(page, without) for page in shared)

    def lease(self, count: int, keys: Sequence[bytes] = ()) -> Lease | None:
        """Lease `count` pages. They begin with pages that hold the content of `keys`, up to the first key without one.

        Returns None if there are too few pages.
        """
        shared = self._shared(keys)
        if self._num_new(count, shared) > self.num_free:
            return None
        num_new = count - len(shared)
        for page in shared:
            self._kept.pop(page, None)
        while len(self._free) < num_new:
            self._forget_oldest()
        cut = len(self._free) - num_new
        pages = (*shared, *reversed(self._free[cut:]))
        del self._free[cut:]
        self._num_leases[list(pages)] += 1
        return Lease(pages, len(shared))

    def _has_only(self, page: int, leases: Mapping[int, int]) -> bool:
        return 0 < leases.get(page, 0) == int(self._num_leases[page])

    def _shared(self, keys: Sequence[bytes]) -> list[int]:
        pages: list[int] = []
        for key in keys:
            if (page := self._page_of.get(key)) is None:
                break
            pages.append(page)
        return pages

    def _num_new(self, count: int, shared: Sequence[int]) -> int:
        return count - len(shared) + sum(page in self._kept for page in shared)

    def share(self, page: int, key: bytes) -> None:
        """Let later leases share a leased page, which holds the content of `key` and is not written any more."""
        if not self._num_leases[page]:
            raise RuntimeError(f"KV page {page} was to be shared without a lease")
        if key not in self._page_of:  # else another stream has already shared a page with it
            self._page_of[key] = page
            self._key_of[page] = key

    def give_back(self, pages: Sequence[int]) -> None:
        num_leases = self._num_leases[list(pages)]
        if not num_leases.all():
            raise RuntimeError(f"KV page {pages[int(num_leases.argmin())]} was given back without a lease")
        self._num_leases[list(pages)] -= 1
        # Begin with the last page: the end of a prefix is useless without its beginning, so it is forgotten first.
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
        """Raise RuntimeError unless each page is free, leased or kept, and each kept page has a key."""
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
