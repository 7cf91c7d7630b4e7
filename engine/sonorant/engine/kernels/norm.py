"""Residual sum and RMSNorm in one kernel."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from sonorant.engine.kernels.overlap import launch_dependents, overlap, wait


def add_rms_norm(x: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return x + delta and its RMSNorm, both [rows, size]; without `delta` the sum is `x` itself.

    Twin: an addition and `sonorant.engine.model.layers.RMSNorm`.
    """
    rows, size = x.shape
    total = x if delta is None else torch.empty_like(x)
    out = torch.empty_like(x)
    block = triton.next_power_of_2(size)
    _add_rms_norm[(rows,)](
        x,
        x if delta is None else delta,
        weight,
        total,
        out,
        size,
        eps,
        HAS_DELTA=delta is not None,
        BLOCK=block,
        num_warps=max(1, min(8, block // 256)),
        **overlap(x),
    )
    return total, out


@triton.jit
def _add_rms_norm(
    x, delta, weight, total, out, size, eps, HAS_DELTA: tl.constexpr, BLOCK: tl.constexpr, OVERLAP: tl.constexpr
):  # fmt: skip
    if OVERLAP:
        launch_dependents()
        wait()
    row = tl.program_id(0).to(tl.int64) * size
    at = tl.arange(0, BLOCK)
    inside = at < size
    dtype = x.dtype.element_ty
    wide = tl.load(x + row + at, mask=inside, other=0.0).to(tl.float32)
    if HAS_DELTA:
        # Round after each operation, as the plain twin does.
        wide = (wide + tl.load(delta + row + at, mask=inside, other=0.0).to(tl.float32)).to(dtype)
        tl.store(total + row + at, wide, mask=inside)
        wide = wide.to(tl.float32)
    wide *= tl.rsqrt(tl.sum(wide * wide, 0) / size + eps)
    scaled = wide.to(dtype).to(tl.float32) * tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row + at, scaled.to(dtype), mask=inside)
