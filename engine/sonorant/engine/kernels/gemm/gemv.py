"""Matrix products of one row, with the norm before and the activation or residual sum after in the same kernel.

Their time is spent on reading the weights.
"""

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from sonorant.engine.kernels.overlap import launch_dependents, overlap, wait

TILE = 8192  # weights that a program reads at once
MAX_BLOCK_IN = 2048


@dataclass(frozen=True, slots=True)
class Norm:
    """RMSNorm of the rows before a product."""

    weight: Tensor  # [size in]
    eps: float


def gemv(
    x: Tensor, weight: Tensor, *, norm: Norm | None = None, residual: Tensor | None = None, is_swiglu: bool = False
) -> Tensor:
    """Do what `sonorant.engine.kernels.gemm.linear.linear` does, for x [1, size in]. Tensors are contiguous."""
    size_out, size_in = weight.shape
    if is_swiglu:
        size_out //= 2
    out = x.new_empty(len(x), size_out)
    whole = triton.next_power_of_2(size_in)
    block_in = min(MAX_BLOCK_IN, whole)
    block_out = max(1, min(8, TILE // block_in) // (2 if is_swiglu else 1))
    _row[(triton.cdiv(size_out, block_out),)](
        x,
        x if norm is None else norm.weight,
        weight,
        x if residual is None else residual,
        out,
        size_out,
        0.0 if norm is None else norm.eps,
        SIZE_IN=size_in,
        WHOLE=whole,
        BLOCK_OUT=block_out,
        BLOCK_IN=block_in,
        NORM=norm is not None,
        SWIGLU=is_swiglu,
        RESIDUAL=residual is not None,
        num_warps=4,
        **overlap(x),
    )
    return out


@triton.jit
def _row(
    x, norm_weight, weight, residual, out, size_out, eps,
    SIZE_IN: tl.constexpr, WHOLE: tl.constexpr, BLOCK_OUT: tl.constexpr, BLOCK_IN: tl.constexpr,
    NORM: tl.constexpr, SWIGLU: tl.constexpr, RESIDUAL: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    if OVERLAP:
        launch_dependents()
    row = tl.program_id(0) * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
    is_row = row < size_out
    dtype = out.dtype.element_ty
    line = weight + row.to(tl.int64)[:, None] * SIZE_IN
    up_line = line + size_out.to(tl.int64) * SIZE_IN
    at = tl.arange(0, BLOCK_IN)
    inside = is_row[:, None] & (at < SIZE_IN)[None, :]
    early = tl.load(line + at[None, :], mask=inside, other=0.0)
    if SWIGLU:
        early_up = tl.load(up_line + at[None, :], mask=inside, other=0.0)
    if OVERLAP:
        wait()
    if NORM:
        every = tl.arange(0, WHOLE)
        wide = tl.load(x + every, mask=every < SIZE_IN, other=0.0).to(tl.float32)
        factor = tl.rsqrt(tl.sum(wide * wide, 0) / SIZE_IN + eps)
    total = tl.zeros([BLOCK_OUT, BLOCK_IN], tl.float32)
    total_up = tl.zeros([BLOCK_OUT, BLOCK_IN], tl.float32)
    for start in tl.static_range(0, SIZE_IN, BLOCK_IN):  # unrolled, so that all reads can start at once
        at = start + tl.arange(0, BLOCK_IN)
        inside = is_row[:, None] & (at < SIZE_IN)[None, :]
        value = tl.load(x + at, mask=at < SIZE_IN, other=0.0).to(tl.float32)
        if NORM:  # round after each operation, as the plain twin does
            scale = tl.load(norm_weight + at, mask=at < SIZE_IN, other=0.0).to(tl.float32)
            value = ((value * factor).to(dtype).to(tl.float32) * scale).to(dtype).to(tl.float32)
        if start == 0:
            total += early.to(tl.float32) * value[None, :]
        else:
            total += tl.load(line + at[None, :], mask=inside, other=0.0).to(tl.float32) * value[None, :]
        if SWIGLU:
            if start == 0:
                total_up += early_up.to(tl.float32) * value[None, :]
            else:
                total_up += tl.load(up_line + at[None, :], mask=inside, other=0.0).to(tl.float32) * value[None, :]
    result = tl.sum(total, 1).to(dtype)
    if SWIGLU:
        result = _swiglu(result, tl.sum(total_up, 1).to(dtype))
    if RESIDUAL:
        result = (result.to(tl.float32) + tl.load(residual + row, mask=is_row, other=0.0).to(tl.float32)).to(dtype)
    tl.store(out + row, result, mask=is_row)


@triton.jit
def _swiglu(gate, up):
    """silu(gate) * up, rounded as in the plain twin."""
    wide = gate.to(tl.float32)
    activated = (wide / (1.0 + tl.exp(-wide))).to(gate.dtype).to(tl.float32)
    return (activated * up.to(tl.float32)).to(gate.dtype)
