"""Depthwise causal convolution and the layer norm after it, in one kernel."""

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from sonorant.engine.kernels.overlap import launch_dependents, overlap, wait


@dataclass(frozen=True, slots=True)
class DepthwiseNorm:
    """Parameters, all float32."""

    taps: Tensor  # [taps, channels], the oldest first
    bias: Tensor  # [channels]
    norm_weight: Tensor  # [channels]
    norm_bias: Tensor  # [channels]
    eps: float


def depthwise_norm(x: Tensor, parameters: DepthwiseNorm) -> Tensor:
    """x [rows, taps - 1 + n, channels] -> [rows, n, channels]. Twin: the beginning of
    `sonorant.engine.model.codec.code2wav.ConvNeXtBlock`."""
    rows, positions, channels = x.shape
    num_taps = len(parameters.taps)
    num_new = positions - num_taps + 1
    out = x.new_empty(rows, num_new, channels)
    block = triton.next_power_of_2(channels)
    p = parameters
    _depthwise_norm[(rows * num_new,)](
        x, p.taps, p.bias, p.norm_weight, p.norm_bias, out, num_new, p.eps,
        TAPS=num_taps, CHANNELS=channels, BLOCK=block, num_warps=max(1, min(8, block // 256)),
        **overlap(x),
    )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["num_new"])
def _depthwise_norm(
    x, taps, bias, norm_weight, norm_bias, out, num_new, eps,
    TAPS: tl.constexpr, CHANNELS: tl.constexpr, BLOCK: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    if OVERLAP:
        launch_dependents()
        wait()
    at = tl.program_id(0)
    first = (at // num_new * (num_new + TAPS - 1) + at % num_new) * CHANNELS
    c = tl.arange(0, BLOCK)
    inside = c < CHANNELS
    total = tl.load(bias + c, mask=inside, other=0.0)
    for tap in tl.static_range(TAPS):
        seen = tl.load(x + first + tap * CHANNELS + c, mask=inside, other=0.0).to(tl.float32)
        total += seen * tl.load(taps + tap * CHANNELS + c, mask=inside, other=0.0)
    off_mean = tl.where(inside, total - tl.sum(total, 0) / CHANNELS, 0.0)
    normed = off_mean * tl.rsqrt(tl.sum(off_mean * off_mean, 0) / CHANNELS + eps)
    normed = normed * tl.load(norm_weight + c, mask=inside) + tl.load(norm_bias + c, mask=inside)
    tl.store(out + at * CHANNELS + c, normed.to(out.dtype.element_ty), mask=inside)
