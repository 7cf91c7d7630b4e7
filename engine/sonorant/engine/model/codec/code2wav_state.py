"""What the codec decoder remembers of each stream, as one struct of arrays. Knows no network layer.

A slot's convolution tails lie one after the other in a single row, so that a call gathers and scatters one array for
all layers; each layer knows its own columns. Keys are stored rotated by their absolute position, oldest first. The
reader masks entries from before the beginning of the stream and does not rely on their being zero. The fused decoder
has the same arrays in another layout, see sonorant.engine.model.codec.code2wav_fused.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from sonorant.engine.checkpoint.config import CodecDecoderConfig
from sonorant.engine.cuda import zeros


@dataclass(frozen=True, slots=True)
class CodecState:
    """What the decoder remembers, by row: the state of all slots, or the rows of one call gathered from it."""

    num_frames: Tensor  # [rows] int64, decoded so far
    tails: Tensor  # [rows, tail_size]
    keys: Tensor  # [rows, layers, kv_heads, window - 1, head_dim]
    values: Tensor  # [rows, layers, kv_heads, window - 1, head_dim]

    @classmethod
    def zeros(
        cls, config: CodecDecoderConfig, num_slots: int, tail_size: int, device: torch.device, dtype: torch.dtype
    ) -> "CodecState":
        """The state of streams that have not begun."""
        stack = config.stack
        kept = (num_slots, stack.num_layers, stack.num_kv_heads, config.sliding_window - 1, stack.head_dim)
        return cls(
            torch.zeros(num_slots, dtype=torch.int64, device=device),
            zeros((num_slots, tail_size), device, dtype),
            zeros(kept, device, dtype),
            zeros(kept, device, dtype),
        )

    def gather(self, slots: Tensor) -> "CodecState":
        return CodecState(
            self.num_frames.index_select(0, slots),
            self.tails.index_select(0, slots),
            self.keys.index_select(0, slots),
            self.values.index_select(0, slots),
        )

    def scatter(self, slots: Tensor, rows: "CodecState") -> None:
        self.num_frames.index_copy_(0, slots, rows.num_frames)
        self.tails.index_copy_(0, slots, rows.tails)
        self.keys.index_copy_(0, slots, rows.keys)
        self.values.index_copy_(0, slots, rows.values)

    def reset(self, slot: int, num_frames: int = 0) -> None:
        """Forget what the slot has, and place it at frame `num_frames` without any memory of the frames before."""
        for array in (self.num_frames, self.tails, self.keys, self.values):
            array[slot].zero_()
        self.num_frames[slot].fill_(num_frames)

    def copy(self, source: int, target: int) -> None:
        for array in (self.num_frames, self.tails, self.keys, self.values):
            array[target].copy_(array[source])


class TailLayout:
    """Hands out columns of `CodecState.tails` while the network is built."""

    def __init__(self) -> None:
        self.size = 0

    def take(self, channels: int, length: int) -> "Tail":
        tail = Tail(self.size, channels, length)
        self.size += channels * length
        return tail


@dataclass(frozen=True, slots=True)
class Tail:
    """The last `length` inputs of one layer."""

    start: int
    channels: int
    length: int

    def kept(self, state: CodecState) -> Tensor:
        """Return a view of the tail in `state`, [rows, channels, length]; write new inputs to it to remember them."""
        columns = state.tails[:, self.start : self.start + self.channels * self.length]
        return columns.view(-1, self.channels, self.length)
