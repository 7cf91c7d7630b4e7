"""Matrix product of one row, which is nothing but the reading of the weights."""

import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

BLOCK_OUT = 4
MAX_BLOCK_IN = 1024


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [rows, size in] times weight [size out, size in], transposed: [rows, size out]. Twin: `F.linear`.

    cuBLAS takes up to four times as long as the reading lasts for the small matrices of the code predictor, if there is
    one row; from a few rows on it is as good as anything.
    """
    if len(x) > 1 or bias is not None or not weight.is_contiguous():
        return F.linear(x, weight, bias)
    size_out, size_in = weight.shape
    out = x.new_empty(1, size_out)
    block_in = min(MAX_BLOCK_IN, triton.next_power_of_2(size_in))
    grid = (triton.cdiv(size_out, BLOCK_OUT),)
    _product[grid](
        x, weight, out, size_out, SIZE_IN=size_in, BLOCK_OUT=BLOCK_OUT, BLOCK_IN=block_in, num_warps=4
    )  # fmt: skip
    return out


@triton.jit
def _product(
    x, weight, out, size_out, SIZE_IN: tl.constexpr, BLOCK_OUT: tl.constexpr, BLOCK_IN: tl.constexpr
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
    is_row = rows < size_out
    first = rows.to(tl.int64)[:, None] * SIZE_IN
    total = tl.zeros([BLOCK_OUT, BLOCK_IN], tl.float32)
    for start in tl.static_range(0, SIZE_IN, BLOCK_IN):  # unrolled, so that all reads are under way at once
        at = start + tl.arange(0, BLOCK_IN)
        inside = at < SIZE_IN
        value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
        factors = tl.load(weight + first + at[None, :], mask=is_row[:, None] & inside[None, :], other=0.0)
        total += factors.to(tl.float32) * value[None, :]
    tl.store(out + rows, tl.sum(total, 1).to(out.dtype.element_ty), mask=is_row)
