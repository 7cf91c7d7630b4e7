"""Matrix products of up to 64 rows in CUDA C++, with the norm before and the activation or residual sum after inside.

The kernel is in wgmma_gemm.cu; see there for how a norm is split in two. Here is decided which products it does,
and how they are shared out.
"""

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from sonorant.engine.kernels.cuda_code import CudaKernel, load, offers
from sonorant.engine.kernels.gemm.gemv import Norm

MAX_ROWS = 64
INSTRUCTION_OUT = 32
STAGE_IN = 64
# An H100 or H200 has 132 multiprocessors. What is under way in a block decides how many fit on one of them; all of a
# product should fit at once, and clusters of four or eight do not fill the last places.
BLOCKS_WANTED = 256
MOST_BLOCKS_OF_TWO_EACH = 264
STAGES_BYTES_OF_TWO_EACH = 74 * 1024
STAGES_BYTES_OF_THREE_EACH = 62 * 1024
BARRIER_BYTES = 16
SQUARES_TOGETHER = 16  # that a row must have a multiple of
NUM_THREADS = 128


@dataclass(frozen=True, slots=True)
class Scaled:
    """Rows times the weight of the norm that comes next, and parts of the rows' own sums of squares."""

    values: Tensor  # [rows, size]
    squares: Tensor  # [rows, parts], float32


@dataclass(frozen=True, slots=True)
class WgmmaTiling:
    """How a product is shared out; see the macros of wgmma_gemm.cu."""

    block_out: int  # weight rows of a block of threads
    split: int  # blocks of threads that share the inputs of the same outputs
    places: int  # for stages of 64 inputs

    @classmethod
    def of(cls, size_out: int, size_in: int, *, is_swiglu: bool) -> "WgmmaTiling | None":
        """Return the best tiling, as measured on an H200; None if there is none. `size_out`: after SwiGLU."""
        num_lines = size_out * (2 if is_swiglu else 1)
        block_out = 2 * INSTRUCTION_OUT if num_lines > BLOCKS_WANTED * INSTRUCTION_OUT else INSTRUCTION_OUT
        if num_lines % block_out:
            return None
        split = next((n for n in (2, 4) if num_lines // block_out * n >= BLOCKS_WANTED), 8)
        num_stages, rest = divmod(size_in, split * STAGE_IN)
        if rest or not num_stages:
            return None
        are_two_each = split == 2 and num_lines // block_out * split <= MOST_BLOCKS_OF_TWO_EACH
        stages_bytes = STAGES_BYTES_OF_TWO_EACH if are_two_each else STAGES_BYTES_OF_THREE_EACH
        return cls(block_out, split, stages_bytes // ((MAX_ROWS + block_out) * STAGE_IN * 2))


@dataclass(frozen=True, slots=True)
class WgmmaProduct:
    """What one compiled kernel computes, for which there is a tiling. `size_out`: after SwiGLU."""

    size_in: int
    size_out: int
    num_squares: int = 0  # parts of a row's sum of squares; 0: there is no norm before
    is_swiglu: bool = False
    has_residual: bool = False
    is_scaled: bool = False  # for the norm that comes next
    is_float16: bool = False

    def tiling(self) -> WgmmaTiling:
        tiling = WgmmaTiling.of(self.size_out, self.size_in, is_swiglu=self.is_swiglu)
        assert tiling is not None
        return tiling

    def macros(self, tiling: WgmmaTiling) -> dict[str, int]:
        return {
            "IN": self.size_in,
            "OUT": self.size_out,
            "BLOCK_OUT": tiling.block_out,
            "SPLIT": tiling.split,
            "PLACES": tiling.places,
            "SQUARES": self.num_squares,
            "SWIGLU": int(self.is_swiglu),
            "RESIDUAL": int(self.has_residual),
            "NEXT": int(self.is_scaled),
            "FLOAT16": int(self.is_float16),
        }


def fits(x: Tensor, weight: Tensor, *, is_swiglu: bool) -> bool:
    """Return whether `wgmma_gemm` can do this product, and is the fastest for its number of rows."""
    if len(x) > MAX_ROWS or x.dtype not in (torch.bfloat16, torch.float16):
        return False
    size_out, size_in = weight.shape
    tiling = WgmmaTiling.of(size_out // (2 if is_swiglu else 1), size_in, is_swiglu=is_swiglu)
    if tiling is None or not (x.is_contiguous() and weight.is_contiguous()):
        return False
    return offers(x, shared_bytes=shared_bytes(tiling, size_in), clusters=True, warpgroups=True)


def wgmma_gemm(
    x: Tensor | Scaled,
    weight: Tensor,
    *,
    eps: float = 0.0,
    residual: Tensor | None = None,
    next_norm: Norm | None = None,
    is_swiglu: bool = False,
) -> tuple[Tensor, Scaled | None]:
    """Do what `sonorant.engine.kernels.gemm.linear.linear` does, for rows that `fits` accepts.

    With `Scaled` rows this is the product of their norm, which has this `eps`. With `next_norm` the result is returned
    scaled for that norm, too, if the next product can take it so.
    """
    rows, squares = (x.values, x.squares) if isinstance(x, Scaled) else (x, None)
    size_out, size_in = weight.shape
    size_out //= 2 if is_swiglu else 1
    out = rows.new_empty(len(rows), size_out)
    num_squares = 0 if squares is None else squares.shape[1]
    scaled = None
    if next_norm is not None:
        tiling = WgmmaTiling.of(size_out, size_in, is_swiglu=is_swiglu)
        assert tiling is not None, "`fits` says so"
        next_squares = size_out // tiling.block_out
        if next_squares % SQUARES_TOGETHER == 0:
            scaled = Scaled(torch.empty_like(out), rows.new_empty(len(rows), next_squares, dtype=torch.float32))
    product = WgmmaProduct(
        size_in,
        size_out,
        num_squares=num_squares,
        is_swiglu=is_swiglu,
        has_residual=residual is not None,
        is_scaled=scaled is not None,
        is_float16=rows.dtype == torch.float16,
    )
    kernel = _kernel(product, rows.device)
    kernel.launch(
        rows,
        rows if squares is None else squares,
        eps,
        weight,
        rows if residual is None else residual,
        out,
        rows if next_norm is None else next_norm.weight,
        rows if scaled is None else scaled.values,
        rows if scaled is None else scaled.squares,
        len(rows),
    )
    return out, scaled


@cache
def _kernel(product: WgmmaProduct, device: torch.device) -> CudaKernel:
    tiling = product.tiling()
    return load(
        "gemm/wgmma_gemm.cu",
        product.macros(tiling),
        device,
        blocks=product.size_out * (2 if product.is_swiglu else 1) // tiling.block_out * tiling.split,
        threads=NUM_THREADS,
        blocks_per_cluster=tiling.split,
        shared_bytes=shared_bytes(tiling, product.size_in),
    )


def shared_bytes(tiling: WgmmaTiling, size_in: int) -> int:
    """As wgmma_gemm.cu lays it out: the stages under way, and the sums that the blocks of a cluster send."""
    num_stages = min(tiling.places, size_in // tiling.split // STAGE_IN)
    stages = num_stages * (MAX_ROWS + tiling.block_out) * STAGE_IN * 2
    return stages + MAX_ROWS * tiling.block_out * 4 + BARRIER_BYTES
