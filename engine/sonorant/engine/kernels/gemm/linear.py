"""Matrix products with the norm before and the activation or residual sum after, by what is fastest for the shape."""

import torch.nn.functional as F
from torch import Tensor

from sonorant.engine.kernels.gemm import skinny_gemm, wgmma_gemm
from sonorant.engine.kernels.gemm.gemv import Norm, gemv
from sonorant.engine.kernels.gemm.wgmma_gemm import Scaled
from sonorant.engine.kernels.norm import add_rms_norm
from sonorant.engine.kernels.swiglu import swiglu


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    norm: Norm | None = None,
    scaled: Scaled | None = None,
    residual: Tensor | None = None,
    is_swiglu: bool = False,
) -> Tensor:
    """Return the normed x [rows, size in] times weight.T, weight [size out, size in], plus `bias` and `residual`.

    The result is [rows, size out]; with `is_swiglu` the weight has the rows of gate, then those of up, and the result
    is half as wide. `residual` may be overwritten. `scaled`: x scaled for `norm`, if it is known.
    Twin: `RMSNorm`, `F.linear`, the middle of `MLP` (`sonorant.engine.model.layers`), an addition.
    """
    if bias is None:
        if skinny_gemm.fits(x, weight, is_swiglu=is_swiglu):
            return skinny_gemm.skinny_gemm(x, weight, norm=norm, residual=residual, is_swiglu=is_swiglu)
        if len(x) == 1 and x.is_contiguous() and weight.is_contiguous():
            return gemv(x, weight, norm=norm, residual=residual, is_swiglu=is_swiglu)
        if wgmma_gemm.fits(x, weight, is_swiglu=is_swiglu):
            if norm is None:
                return wgmma_gemm.wgmma_gemm(x, weight, residual=residual, is_swiglu=is_swiglu)[0]
            if scaled is not None:
                return wgmma_gemm.wgmma_gemm(scaled, weight, eps=norm.eps, residual=residual, is_swiglu=is_swiglu)[0]
    if norm is not None:
        normed = add_rms_norm(x, None, norm.weight, norm.eps)[1]
        return linear(normed, weight, bias, residual=residual, is_swiglu=is_swiglu)
    if residual is not None and bias is None and not is_swiglu:
        return residual.addmm_(x, weight.t())
    out = F.linear(x, weight, bias)
    if is_swiglu:
        out = swiglu(out)
    return out if residual is None else out + residual


def linear_before_norm(x: Tensor, weight: Tensor, *, residual: Tensor, next_norm: Norm) -> tuple[Tensor, Scaled | None]:
    """Return `linear` of x with `residual`, and the same scaled for the norm that comes next, if that saves time."""
    if not skinny_gemm.fits(x, weight, is_swiglu=False) and wgmma_gemm.fits(x, weight, is_swiglu=False):
        return wgmma_gemm.wgmma_gemm(x, weight, residual=residual, next_norm=next_norm)
    return linear(x, weight, residual=residual), None
