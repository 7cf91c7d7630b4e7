"""Matrix products of up to 16 rows in CUDA C++, with the norm before and the activation or residual sum after inside.

The kernel is in skinny_gemm.cu. Here is decided which products it does, and how they are shared out.
"""

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from sonorant.engine.kernels.cuda_code import CudaKernel, load, offers
from sonorant.engine.kernels.gemm.gemv import Norm

MAX_ROWS = 16
TILE_OUT = 8
BLOCK_IN = 32
BLOCKS_WANTED = 128  # an H100 or H200 has 132 multiprocessors
TILES_BYTES = 96 * 1024  # of weights under way in a block: two blocks fit on a multiprocessor
MAX_SPLIT = 4
BARRIER_BYTES = 16
MOST_SHARED_BYTES = 99 * 1024  # of any tiling, see `_shared_bytes`


@dataclass(frozen=True, slots=True)
class SkinnyTiling:
    """How a product is shared out; see the macros of skinny_gemm.cu."""

    tiles: int  # of 8 weight rows per block of threads
    warps: int  # that share the inputs
    split: int  # blocks of threads that share the inputs of the same outputs
    ahead: int  # tiles under way

    @classmethod
    def of(cls, size_out: int, size_in: int, *, is_swiglu: bool, may_split: bool) -> "SkinnyTiling | None":
        """Return the best tiling, as measured on an H200; None if there is none. `size_out`: after SwiGLU.

        Which inputs are summed up together depends on the sizes alone.
        """
        tiles = 8 if is_swiglu else 4
        block_out = tiles * TILE_OUT // (2 if is_swiglu else 1)
        if size_out % block_out:
            return None
        num_blocks = size_out // block_out
        warps = 4 if num_blocks > BLOCKS_WANTED else 8
        split = next((n for n in (1, 2) if num_blocks * n >= BLOCKS_WANTED), MAX_SPLIT) if may_split else 1
        while size_in % (split * warps * BLOCK_IN):
            if split == 1 and warps == 1:
                return None
            split, warps = (split // 2, warps) if split > 1 else (split, warps // 2)
        num_tiles = size_in // (split * warps * BLOCK_IN)
        ahead = TILES_BYTES // (warps * tiles * TILE_OUT * BLOCK_IN * 2)
        return cls(tiles, warps, split, min(num_tiles, ahead))


@dataclass(frozen=True, slots=True)
class SkinnyProduct:
    """What one compiled kernel computes. `size_out`: after SwiGLU."""

    size_in: int
    size_out: int
    has_norm: bool = False
    is_swiglu: bool = False
    has_residual: bool = False
    is_float16: bool = False

    def tiling(self) -> SkinnyTiling | None:
        return SkinnyTiling.of(self.size_out, self.size_in, is_swiglu=self.is_swiglu, may_split=not self.has_norm)

    def macros(self, tiling: SkinnyTiling) -> dict[str, int]:
        return {
            "IN": self.size_in,
            "OUT": self.size_out,
            "TILES": tiling.tiles,
            "WARPS": tiling.warps,
            "SPLIT": tiling.split,
            "AHEAD": tiling.ahead,
            "NORM": int(self.has_norm),
            "SWIGLU": int(self.is_swiglu),
            "RESIDUAL": int(self.has_residual),
            "FLOAT16": int(self.is_float16),
        }


def fits(x: Tensor, weight: Tensor, *, is_swiglu: bool) -> bool:
    """Return whether `skinny_gemm` can do this product, and is the fastest."""
    if len(x) > MAX_ROWS or x.dtype not in (torch.bfloat16, torch.float16):
        return False
    size_out, size_in = weight.shape
    tiling = SkinnyTiling.of(size_out // (2 if is_swiglu else 1), size_in, is_swiglu=is_swiglu, may_split=False)
    is_fit = tiling is not None and x.is_contiguous() and weight.is_contiguous()
    return is_fit and offers(x, shared_bytes=MOST_SHARED_BYTES, clusters=True)


def skinny_gemm(
    x: Tensor,
    weight: Tensor,
    *,
    norm: Norm | None = None,
    residual: Tensor | None = None,
    is_swiglu: bool = False,
) -> Tensor:
    """Do what `sonorant.engine.kernels.gemm.linear.linear` does, for up to MAX_ROWS rows that `fits` accepts."""
    size_out, size_in = weight.shape
    size_out //= 2 if is_swiglu else 1
    out = x.new_empty(len(x), size_out)
    product = SkinnyProduct(
        size_in,
        size_out,
        has_norm=norm is not None,
        is_swiglu=is_swiglu,
        has_residual=residual is not None,
        is_float16=x.dtype == torch.float16,
    )
    kernel = _kernel(product, x.device)
    kernel.launch(
        x,
        x if norm is None else norm.weight,
        weight,
        x if residual is None else residual,
        out,
        len(x),
        0.0 if norm is None else norm.eps,
    )
    return out


@cache
def _kernel(product: SkinnyProduct, device: torch.device) -> CudaKernel:
    tiling = product.tiling()
    assert tiling is not None, "`fits` says so"
    block_out = tiling.tiles * TILE_OUT // (2 if product.is_swiglu else 1)
    return load(
        "gemm/skinny_gemm.cu",
        product.macros(tiling),
        device,
        blocks=product.size_out // block_out * tiling.split,
        threads=tiling.warps * 32,
        blocks_per_cluster=tiling.split,
        shared_bytes=_shared_bytes(tiling, product.has_norm),
    )


def _shared_bytes(tiling: SkinnyTiling, has_norm: bool) -> int:
    """As skinny_gemm.cu lays it out: each warp's tiles, later its sums; squares; the sums that other blocks send."""
    sums = MAX_ROWS * tiling.tiles * TILE_OUT * 4
    tiles = tiling.ahead * tiling.tiles * TILE_OUT * BLOCK_IN * 2
    squares = MAX_ROWS * 4 if has_norm else 0
    received = sums + BARRIER_BYTES if tiling.split > 1 else 0
    return tiling.warps * (max(sums, tiles) + squares) + received
