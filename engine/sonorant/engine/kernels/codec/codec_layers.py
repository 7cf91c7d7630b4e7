"""Layers of the codec decoder as its kernels take them.

The layout is [rows, positions, channels]. A convolution reads an extended buffer, in which the inputs that it remembers
stand before the new ones. It writes to the extended buffer of the next one, behind the place for what that one
remembers; so nothing has to be joined or copied. A transposed convolution of stride s is computed as a convolution with
the outputs of s positions side by side. An output is activated once, by the kernel that makes it, and not by the kernel
that reads it, which would do so once per tap.

The matrix of a convolution is [taps * channels in, channels out], the oldest tap first.
"""

from dataclasses import dataclass

from torch import Tensor

MAX_UNIT_CHANNELS = 192  # of a residual unit in one kernel
PRODUCT_CHANNELS = 16  # of a buffer with the products of the last convolution's taps: 8, and their rounding errors


def padded_channels(channels: int) -> int:
    """Channels of a buffer: a multiple of 16 for `tl.dot`, and a sum of two powers of two if one tile has them all."""
    padded = -(-channels // 16) * 16
    while padded <= MAX_UNIT_CHANNELS and padded.bit_count() > 2:
        padded += 16
    return padded


@dataclass(frozen=True, slots=True)
class Snake:
    """SnakeBeta of each output channel: x + sin^2(x * frequency) * magnitude; both [channels out], float32."""

    frequency: Tensor
    magnitude: Tensor


@dataclass(frozen=True, slots=True)
class Convolution:
    """Parameters of a convolution, or of a transposed one, which has its `stride` outputs per input side by side."""

    matrix: Tensor  # [taps * channels_in, stride * channels_out]
    bias: Tensor  # [stride * channels_out], float32
    taps: int
    dilation: int = 1
    stride: int = 1

    @property
    def num_kept(self) -> int:
        """How many inputs the convolution remembers."""
        return (self.taps - 1) * self.dilation
