"""Copies the inputs that convolutions remember: from the slots to the front of the extended buffers, and from the end
of the buffers back to the slots.

The buffers of all layers lie in one array, so that each direction is one launch: layer after layer, each
[rows, kept + new positions, channels]. A slot's tails lie in one row in the same way, each [kept, channels].
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from sonorant.engine.kernels.overlap import launch_dependents, overlap, wait

CHUNK = 2048  # elements per program


@dataclass(frozen=True, slots=True)
class BufferShape:
    """The extended buffer of one layer."""

    num_kept: int
    positions_per_frame: int
    channels: int


class Tails:
    """Where the buffers of all layers lie, for any number of rows and frames."""

    def __init__(self, shapes: Sequence[BufferShape], device: torch.device) -> None:
        self._shapes = shapes
        self.size = 0  # elements of a slot's tails
        self._per_frame = 0  # elements that each frame adds to a row's buffers
        chunks = []
        for shape in shapes:
            kept, new = shape.num_kept * shape.channels, shape.positions_per_frame * shape.channels
            for start in range(0, kept, CHUNK):
                chunks.append((self.size, self._per_frame, kept, new, start))
            self.size += kept
            self._per_frame += new
        self._chunks = torch.tensor(chunks, dtype=torch.int64, device=device)

    def buffers(self, array: Tensor, num_rows: int, num_frames: int) -> list[Tensor]:
        """Split `array` into the buffer of each layer, [rows, kept + new, channels]."""
        sizes = [num_rows * (s.num_kept + num_frames * s.positions_per_frame) * s.channels for s in self._shapes]
        return [
            part.view(num_rows, -1, shape.channels)
            for part, shape in zip(torch.split(array, sizes), self._shapes, strict=True)
        ]

    def load(self, tails: Tensor, slots: Tensor, num_frames: int) -> Tensor:
        """Return a new array of buffers for the rows that begin with the tails of their slots; the rest is not set."""
        array = tails.new_empty(len(slots) * (self.size + num_frames * self._per_frame))
        self._copy(array, tails, slots, num_frames, is_load=True)
        return array

    def store(self, array: Tensor, tails: Tensor, slots: Tensor, num_frames: int) -> None:
        self._copy(array, tails, slots, num_frames, is_load=False)

    def _copy(self, array: Tensor, tails: Tensor, slots: Tensor, num_frames: int, *, is_load: bool) -> None:
        grid = (len(self._chunks), len(slots))
        _copy[grid](
            array, tails, self._chunks, slots, num_frames, len(slots), self.size, IS_LOAD=is_load, CHUNK=CHUNK,
            num_warps=4, **overlap(array),
        )  # fmt: skip


@triton.jit(do_not_specialize=["num_frames", "num_rows"])
def _copy(
    array, tails, chunks, slots, num_frames, num_rows, tails_size, IS_LOAD: tl.constexpr, CHUNK: tl.constexpr,
    OVERLAP: tl.constexpr,
):  # fmt: skip
    if OVERLAP:
        launch_dependents()
        wait()
    chunk = chunks + tl.program_id(0) * 5
    row = tl.program_id(1)
    tails_before, per_frame_before = tl.load(chunk), tl.load(chunk + 1)
    kept, per_frame, start = tl.load(chunk + 2), tl.load(chunk + 3), tl.load(chunk + 4)
    # Tails are multiples of 16 channels.
    at = tl.multiple_of(start, 16) + tl.arange(0, CHUNK)
    inside = at < tl.multiple_of(kept, 16)
    in_tails = tl.multiple_of(tl.load(slots + row) * tails_size + tails_before, 16)
    in_array = num_rows * (tails_before + num_frames * per_frame_before) + row * (kept + num_frames * per_frame)
    if IS_LOAD:
        value = tl.load(tails + in_tails + at, mask=inside)
        tl.store(array + tl.multiple_of(in_array, 16) + at, value, mask=inside)
    else:
        in_array += num_frames * per_frame
        value = tl.load(array + tl.multiple_of(in_array, 16) + at, mask=inside)
        tl.store(tails + in_tails + at, value, mask=inside)
