"""Products of up to 16 rows in CUDA C++: how they are shared out, that they compile, and on a GPU what comes out."""

import itertools
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton", reason="Triton comes with the CUDA builds of torch, and with the extra `dev`")

from sonorant.engine.kernels.gemm.gemv import Norm
from sonorant.engine.kernels.gemm.skinny_gemm import MAX_ROWS, SkinnyProduct, SkinnyTiling, fits, skinny_gemm
from sonorant.engine.model.layers import RMSNorm

# Size in, size out, is SwiGLU: layers of the 1.7B talker, then those of the 0.6B talker and of both code predictors.
SHAPES = (
    (2048, 4096, False),
    (2048, 2048, False),
    (2048, 6144, True),
    (6144, 2048, False),
    (1024, 4096, False),
    (2048, 1024, False),
    (1024, 3072, True),
    (3072, 1024, False),
    (1024, 2048, False),
)
NUM_ROWS = (1, 2, 7, 16)


@pytest.mark.parametrize("size_in, size_out, is_swiglu", SHAPES)
@pytest.mark.parametrize("may_split", [False, True])
def test_all_inputs_and_outputs_are_shared_out_equally(
    size_in: int, size_out: int, is_swiglu: bool, may_split: bool
) -> None:
    tiling = SkinnyTiling.of(size_out, size_in, is_swiglu=is_swiglu, may_split=may_split)
    assert tiling is not None
    assert size_in % (tiling.split * tiling.warps * 32) == 0
    assert size_out % (tiling.tiles * 8 // (2 if is_swiglu else 1)) == 0
    assert tiling.split == 1 or may_split


def test_sizes_that_cannot_be_shared_out() -> None:
    assert SkinnyTiling.of(60, 2048, is_swiglu=False, may_split=True) is None
    assert SkinnyTiling.of(64, 40, is_swiglu=False, may_split=True) is None


@pytest.mark.parametrize("is_float16", [False, True])
@pytest.mark.parametrize("size_in, size_out, is_swiglu", [SHAPES[2], SHAPES[7], SHAPES[8]])
def test_the_kernel_compiles(
    size_in: int, size_out: int, is_swiglu: bool, is_float16: bool, compiler: Callable[[str, dict[str, int]], bytes]
) -> None:
    may_split = size_out == 1024
    product = SkinnyProduct(size_in, size_out, not may_split, is_swiglu, may_split, is_float16)
    tiling = product.tiling()
    assert tiling is not None
    macros = product.macros(tiling)
    code = compiler("gemm/skinny_gemm.cu", macros)
    assert code == compiler("gemm/skinny_gemm.cu", macros)  # kept
    with pytest.raises(RuntimeError, match="inputs are shared equally"):
        compiler("gemm/skinny_gemm.cu", macros | {"IN": 40})


@pytest.mark.gpu
@pytest.mark.usefixtures("clusters")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size_in, size_out, is_swiglu", SHAPES)
@torch.inference_mode()
def test_products_equal_the_plain_ones(dtype: torch.dtype, size_in: int, size_out: int, is_swiglu: bool) -> None:
    torch.manual_seed(size_in + size_out)
    weight = (torch.randn(size_out * (2 if is_swiglu else 1), size_in, device="cuda") * size_in**-0.5).to(dtype)
    plain_norm = RMSNorm(size_in, 1e-6)
    plain_norm.weight = torch.nn.Parameter((torch.rand(size_in, device="cuda") + 0.5).to(dtype), requires_grad=False)
    norm = Norm(plain_norm.weight, plain_norm.eps)
    rows = torch.randn(MAX_ROWS, size_in, device="cuda").to(dtype)
    residuals = torch.randn(MAX_ROWS, size_out, device="cuda").to(dtype)
    for has_norm, has_residual in itertools.product((False, True), repeat=2):
        expected = plain_norm(rows).double() if has_norm else rows.double()
        expected = expected @ weight.double().T
        if is_swiglu:
            gate, up = expected.chunk(2, 1)
            expected = F.silu(gate) * up
        if has_residual:
            expected += residuals
        first = None
        for num_rows in NUM_ROWS:
            x, residual = rows[:num_rows], residuals[:num_rows]
            assert fits(x, weight, is_swiglu=is_swiglu)
            ours = skinny_gemm(
                x, weight, norm=norm if has_norm else None, residual=residual if has_residual else None,
                is_swiglu=is_swiglu,
            )  # fmt: skip
            error = (ours.double() - expected[:num_rows]).norm() / expected[:num_rows].norm()
            assert error < (6e-3 if dtype == torch.bfloat16 else 1e-3)
            first = ours[0].clone() if first is None else first
            assert torch.equal(ours[0], first), "a row is the same beside any others"
