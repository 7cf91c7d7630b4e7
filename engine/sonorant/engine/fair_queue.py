"""A queue in which callers take turns. Pure."""

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Gives the oldest item of the caller that has waited longest, so no caller waits for all items of another.

    A caller's own items may take turns in the same way, such as those of its connections.
    """

    __slots__ = ("_lines",)

    def __init__(self) -> None:
        self._lines: dict[str, deque[T] | FairQueue[T]] = {}  # by caller; the one that has waited longest is first

    def __bool__(self) -> bool:  # sooner than by `len`
        return bool(self._lines)

    def push(self, item: T, who: str, *within: str) -> None:
        """Add an item of the caller `who`. `within`: its line among the caller's own; always given, or never."""
        line = self._lines.get(who)
        if line is None:
            line = self._lines[who] = FairQueue() if within else deque()
        if isinstance(line, FairQueue):
            line.push(item, *within)
        else:
            line.append(item)

    def first(self, load: Callable[[str], int]) -> str:
        """Return the caller whose item comes next: of those with the least `load`, the one that has waited longest."""
        return min(self._lines, key=load)

    def popleft(self, load: Callable[[str], int] = lambda _: 0) -> T:
        """Take an item of `first(load)`."""
        who = self.first(load)
        line = self._lines[who]
        del self._lines[who]
        item = line.popleft()
        if line:
            self._lines[who] = line  # at the end now
        return item

    def num_ahead(self, who: str) -> int:
        """Return how many items would go ahead of the next one that this caller pushes."""
        own = len(self._lines.get(who, ()))
        return own + sum(min(len(line), own + 1) for other, line in self._lines.items() if other != who)

    def remove(self, item: T, who: str) -> None:
        """Take out an item that was pushed for this caller alone."""
        line = self._lines[who]
        assert isinstance(line, deque)
        line.remove(item)
        if not line:
            del self._lines[who]

    def drop(self) -> T:
        """Take the newest item of the caller that has most items, from its longest line."""
        who, line = max(self._lines.items(), key=lambda each: len(each[1]))
        item = line.drop() if isinstance(line, FairQueue) else line.pop()
        if not line:
            del self._lines[who]
        return item

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))
