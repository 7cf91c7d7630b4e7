"""A cache that keeps the most recently used values, up to a number of bytes. Not thread-safe."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar


class Sized(Protocol):
    @property
    def num_bytes(self) -> int: ...


Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value", bound=Sized)


class LruCache(Generic[Key, Value]):
    def __init__(self, max_bytes: int) -> None:
        """`max_bytes`: 0 keeps nothing."""
        self.num_bytes = 0
        self._max_bytes = max_bytes
        self._values: OrderedDict[Key, Value] = OrderedDict()  # the most recently used is last

    def get(self, key: Key) -> Value | None:
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def put(self, key: Key, value: Value) -> None:
        """Keep a value; the least recently used ones make room. A value larger than the cache is not kept."""
        if (old := self._values.pop(key, None)) is not None:
            self.num_bytes -= old.num_bytes
        if value.num_bytes > self._max_bytes:
            return
        self._values[key] = value
        self.num_bytes += value.num_bytes
        while self.num_bytes > self._max_bytes:
            _, dropped = self._values.popitem(last=False)
            self.num_bytes -= dropped.num_bytes

    def __len__(self) -> int:
        return len(self._values)

    def drop(self, is_unwanted: Callable[[Key], bool]) -> None:
        """Remove all values with an unwanted key. Looks at every key."""
        for key in [key for key in self._values if is_unwanted(key)]:
            self.num_bytes -= self._values.pop(key).num_bytes
