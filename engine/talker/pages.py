"""The page pool: which KV pages are leased. Pure numbers; the storage behind them belongs to the KV cache."""

from collections.abc import Iterable


class PagePool:
    """Pages 0 .. num_pages - 1, each of `page_size` positions. A lease covers a stream's whole need and never grows."""

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.num_pages = num_pages
        self.page_size = page_size
        self._free = list(reversed(range(num_pages)))
        self._is_leased = bytearray(num_pages)

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_used(self) -> int:
        return self.num_pages - len(self._free)

    def pages_for(self, num_positions: int) -> int:
        return -(-num_positions // self.page_size)

    def lease(self, count: int) -> tuple[int, ...]:
        """Take `count` pages. The caller has looked at `num_free`."""
        if count > len(self._free):
            raise RuntimeError(f"{count} KV pages asked for, {len(self._free)} are free")
        cut = len(self._free) - count
        pages = tuple(reversed(self._free[cut:]))
        del self._free[cut:]
        for page in pages:
            self._is_leased[page] = 1
        return pages

    def give_back(self, pages: Iterable[int]) -> None:
        for page in pages:
            if not self._is_leased[page]:
                raise RuntimeError(f"KV page {page} was given back without a lease")
            self._is_leased[page] = 0
            self._free.append(page)

    def check_conservation(self) -> None:
        """Leased and free pages are all there are. Raises if that does not hold."""
        num_leased = self._is_leased.count(1)
        if num_leased + len(self._free) != self.num_pages:
            raise RuntimeError(f"pages leaked: {num_leased} leased and {len(self._free)} free of {self.num_pages}")
