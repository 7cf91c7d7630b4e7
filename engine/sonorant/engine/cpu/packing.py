"""Arranges weights of convolutions as the functions in C need them."""

from typing import Any, TypeAlias

import torch.nn.functional as F
from torch import Tensor

from sonorant.engine.cpu.library import LANES, LIMIT, NULL, Kept

Conv: TypeAlias = tuple[Any, ...]  # its fields, as in api.h

TINY = 1e-30  # in place of the largest weight of an output that has none


def in_groups(channels: int) -> int:
    """The number with those that fill up the last group."""
    return -(-channels // LANES) * LANES


def padded(tensor: Tensor, *dims: int) -> Tensor:
    """Return it contiguous, its channels in these dimensions filled up with zeros."""
    missing = [0] * 2 * tensor.dim()
    for dim in dims:
        missing[-1 - 2 * (dim % tensor.dim())] = in_groups(tensor.shape[dim]) - tensor.shape[dim]
    return F.pad(tensor, missing).contiguous()


def to_wholes(weight: Tensor, dims: int | tuple[int, ...], limit: int) -> tuple[Tensor, Tensor]:
    """Round to whole numbers of `limit` at most, with a scale for all numbers along `dims`."""
    scales = weight.abs().amax(dims, keepdim=True).clamp_min(TINY) / limit
    return (weight / scales).round_().short(), scales.flatten()


def arranged(weight: Tensor, *, rounded: bool) -> tuple[Tensor, Tensor | None]:
    """Arrange a `weight` [out, in, taps]. Return it, and the scales of its outputs if it is rounded. Its outputs are
    filled up; its inputs only if it is rounded, since those that fill up would cost time."""
    weight = padded(weight, 0, 1) if rounded else padded(weight, 0)
    _, num_in, taps = weight.shape
    if not rounded:  # [out / 16, taps, in, 16]
        return weight.reshape(-1, LANES, num_in, taps).permute(0, 3, 2, 1).contiguous(), None
    whole, scales = to_wholes(weight, (1, 2), LIMIT)  # [out / 16, taps, in / 2, 16, 2]
    return whole.reshape(-1, LANES, num_in // 2, 2, taps).permute(0, 4, 2, 1, 3).contiguous(), scales


def conv_of(
    kept: Kept, weight: Tensor, bias: Tensor | None = None, *, dilation: int = 1, rounded: bool = False
) -> Conv:
    """Pack a `weight` [out, in, taps]. One input channel stays one; the activations of others are filled up."""
    num_out, num_in, taps = weight.shape
    packed, scales = arranged(weight, rounded=rounded)
    bias = padded(weight.new_zeros(num_out) if bias is None else bias, 0)
    scales_at = NULL if scales is None else kept.tensor(scales)
    in_and_out = num_in if num_in == 1 else in_groups(num_in), in_groups(num_out)
    return *in_and_out, taps, dilation, num_in, 0, kept.tensor(packed), scales_at, kept.tensor(bias)
