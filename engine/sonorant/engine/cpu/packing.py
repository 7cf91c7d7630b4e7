"""Arranges weights of convolutions as the functions in C need them."""

import torch.nn.functional as F
from torch import Tensor

from sonorant.engine.cpu.library import LANES, Conv, Kept


def in_groups(channels: int) -> int:
    """The number with those that fill up the last group."""
    return -(-channels // LANES) * LANES


def padded(tensor: Tensor, *dims: int) -> Tensor:
    """Return it contiguous, its channels in these dimensions filled up with zeros."""
    missing = [0] * 2 * tensor.dim()
    for dim in dims:
        missing[-1 - 2 * (dim % tensor.dim())] = in_groups(tensor.shape[dim]) - tensor.shape[dim]
    return F.pad(tensor, missing).contiguous()


def float_conv(kept: Kept, weight: Tensor, bias: Tensor | None = None, dilation: int = 1) -> Conv:
    """Pack a `weight` [out, in, taps] that is not rounded. One input channel stays one; others are filled up."""
    weight = padded(weight, 0) if weight.shape[1] == 1 else padded(weight, 0, 1)
    num_out, num_in, taps = weight.shape
    packed = weight.reshape(-1, LANES, num_in, taps).permute(0, 3, 2, 1).contiguous()  # [out / 16, taps, in, 16]
    bias = weight.new_zeros(num_out) if bias is None else padded(bias, 0)
    return Conv(num_in, num_out, taps, dilation, 0, kept.tensor(packed), None, kept.tensor(bias))
