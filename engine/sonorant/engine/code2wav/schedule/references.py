"""References of cloned voices that need not be decoded again, as the decoder's state after them is kept.

It is kept in places: rows of the state that no stream uses. When all are taken, a new reference replaces the least
recently used one.
"""

from collections import OrderedDict
from collections.abc import Sequence


class KeptReferences:
    """The place of each kept reference, found by the bytes of its codes."""

    def __init__(self, places: Sequence[int]) -> None:
        self._free = list(reversed(places))
        self._place_of: OrderedDict[bytes, int] = OrderedDict()  # least recently used first

    def find(self, reference: bytes) -> int | None:
        """Return the place where the reference is kept, or None if it is not."""
        if reference in self._place_of:
            self._place_of.move_to_end(reference)
        return self._place_of.get(reference)

    def place(self, reference: bytes) -> int | None:
        """Assign a place to a reference and return it; None if it has one already, or if there are no places at all."""
        if reference in self._place_of or not (self._free or self._place_of):
            return None
        place = self._free.pop() if self._free else self._place_of.popitem(last=False)[1]
        self._place_of[reference] = place
        return place
