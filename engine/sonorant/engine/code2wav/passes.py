"""How a call of any size is done in passes of the network of a few sizes. Pure."""

from bisect import bisect_right
from collections.abc import Sequence


def split(count: int, sizes: Sequence[int]) -> list[slice]:
    """Cover range(count) by slices of the given sizes (ascending, the first is 1), the longest that fits first."""
    slices = []
    start = 0
    while start < count:
        stop = start + sizes[bisect_right(sizes, count - start) - 1]
        slices.append(slice(start, stop))
        start = stop
    return slices


def row_sizes(sizes: Sequence[int], num_frames: int, max_frames: int) -> list[int]:
    """Those of the row counts for which a pass has at most `max_frames` frames in all its rows together, or one row."""
    return [size for size in sizes if size == 1 or size * num_frames <= max_frames]
