"""The cache of voices against a list: within its bytes, what was used last is there."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from sonorant.engine import LruCache


@dataclass(frozen=True)
class Value:
    num_bytes: int


STEPS = st.lists(st.tuples(st.integers(0, 5), st.none() | st.integers(0, 12)), max_size=40)  # key, bytes put or a get


@given(st.integers(0, 30), STEPS)
def test_what_was_used_last_stays(max_bytes: int, steps: list[tuple[int, int | None]]) -> None:
    cache: LruCache[int, Value] = LruCache(max_bytes)
    model: list[tuple[int, Value]] = []  # the one used last is the last
    for key, num_bytes in steps:
        known = next((value for other, value in model if other == key), None)
        model = [(other, value) for other, value in model if other != key]
        if num_bytes is None:
            assert cache.get(key) == known
            model += [(key, known)] if known else []
        else:
            value = Value(num_bytes)
            cache.put(key, value)
            if num_bytes <= max_bytes:
                model.append((key, value))
            while sum(value.num_bytes for _, value in model) > max_bytes:
                model.pop(0)
        assert cache.num_bytes == sum(value.num_bytes for _, value in model) <= max_bytes
    for key, value in model:
        assert cache.get(key) == value
