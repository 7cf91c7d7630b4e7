"""Whose references need not be decoded again: what they leave in the decoder's state is kept, in places of its own.

Places are rows of the state that no stream has. The reference that was not asked for the longest goes when another
needs its place.
"""

from collections import OrderedDict
from collections.abc import Sequence


class KeptReferences:
    """References by the bytes of their codes."""

    def __init__(self, places: Sequence[int]) -> None:
        self._free = list(reversed(places))
        self._place_of: OrderedDict[bytes, int] = OrderedDict()  # the one asked for last is the last

    def find(self, reference: bytes) -> int | None:
        """Where it is kept, if it is."""
        if reference in self._place_of:
            self._place_of.move_to_end(reference)
        return self._place_of.get(reference)

    def place(self, reference: bytes) -> int | None:
        """Where to put it from now on; None if it is kept already, or nothing is."""
        if reference in self._place_of or not (self._free or self._place_of):
            return None
        place = self._free.pop() if self._free else self._place_of.popitem(last=False)[1]
        self._place_of[reference] = place
        return place
