"""Splits a call of any size into passes of the network, which come in a few sizes. Pure."""

from bisect import bisect_right
from collections.abc import Collection, Sequence


def split(count: int, sizes: Sequence[int]) -> list[slice]:
    """Cover range(count) with slices of the given sizes (ascending, beginning with 1), always the longest that fits."""
    slices = []
    start = 0
    while start < count:
        stop = start + sizes[bisect_right(sizes, count - start) - 1]
        slices.append(slice(start, stop))
        start = stop
    return slices


def padded(count: int, largest: int) -> list[slice]:
    """Cover range(count) with as few slices of at most `largest` as possible, each for a pass that is filled up."""
    return [slice(start, min(start + largest, count)) for start in range(0, count, largest)]


def row_sizes(sizes: Sequence[int], num_frames: int, max_frames: int) -> list[int]:
    """The row counts among `sizes` with which a pass has at most `max_frames` frames over all rows; always also 1."""
    return [size for size in sizes if size == 1 or size * num_frames <= max_frames]


def shapes(chunk_sizes: Collection[int], sizes: Sequence[int], max_frames: int) -> dict[int, list[int]]:
    """The shapes of passes on CUDA: `row_sizes` by the number of frames of a row, for single frames and all chunks."""
    return {num_frames: row_sizes(sizes, num_frames, max_frames) for num_frames in sorted({1, *chunk_sizes})}
