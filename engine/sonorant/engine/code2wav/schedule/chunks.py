"""How many frames a stream's next chunk has. Pure.

A chunk has one of a few sizes, those for which the device has a pass of the network: a call beside the talker costs
about the same whatever it holds, and a size in between would take several passes.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby

# A chunk is at most so many times as long as what was decoded of its stream before. So a listener that has only the
# first frame does not wait for a large chunk, not even on a slow CPU.
GROWTH = 4


class ChunkSizes:
    def __init__(self, ramp: Sequence[int], pass_sizes: Sequence[int]) -> None:
        """`ramp`: the setting chunk_ramp. `pass_sizes`: the numbers of frames of a pass, from 1 on."""
        if not ramp or min(ramp) < 1:
            raise ValueError(f"chunk_ramp must have sizes of at least 1 frame, not {ramp}")
        self._first = ramp[0]
        self._sizes = [size for size in pass_sizes if size <= max(ramp)]
        # As on the CPU: there a call costs what it holds, and one that waits keeps a core idle that was free.
        self.is_any_size_a_pass = len(self._sizes) == self._sizes[-1] > 1

    def wanted(self, num_decoded: int) -> int:
        """The size for which a stream waits if its listener has enough to play, after so many decoded frames."""
        return self.whole(GROWTH * num_decoded or self._first)

    @property
    def largest(self) -> int:
        return self._sizes[-1]

    def whole(self, num_frames: int) -> int:
        """The largest size that so many frames fill."""
        return self._sizes[bisect_right(self._sizes, num_frames) - 1]

    def padded(self, num_frames: int) -> int:
        """The smallest size into which so many frames fit, which are at most as many as the largest size."""
        return self._sizes[bisect_left(self._sizes, num_frames)]


def rows_of_equal_length(lengths: Sequence[int]) -> Iterator[slice]:
    """Divide the rows of a call, most frames first, into runs of rows that have equally many."""
    start = 0
    for _, run in groupby(lengths):
        stop = start + len(list(run))
        yield slice(start, stop)
        start = stop
