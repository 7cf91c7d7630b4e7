"""Products of up to 64 rows in CUDA C++: how they are shared out, that they compile, and on a GPU what comes out."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton", reason="Triton comes with the CUDA builds of torch, and with the extra `dev`")

from sonorant.engine.kernels.gemm.gemv import Norm
from sonorant.engine.kernels.gemm.linear import linear, linear_before_norm
from sonorant.engine.kernels.gemm.wgmma_gemm import (
    MAX_ROWS,
    WgmmaProduct,
    WgmmaTiling,
    fits,
    shared_bytes,
    wgmma_gemm,
)
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
NUM_ROWS = (17, 32, 40, 63, 64)
MULTIPROCESSOR_BYTES = 227 * 1024


@pytest.mark.parametrize("size_in, size_out, is_swiglu", SHAPES)
def test_all_inputs_and_outputs_are_shared_out_equally(size_in: int, size_out: int, is_swiglu: bool) -> None:
    tiling = WgmmaTiling.of(size_out, size_in, is_swiglu=is_swiglu)
    assert tiling is not None
    assert size_in % (tiling.split * 64) == 0
    assert size_out * (2 if is_swiglu else 1) % tiling.block_out == 0
    assert shared_bytes(tiling, size_in) < MULTIPROCESSOR_BYTES


def test_sizes_that_cannot_be_shared_out() -> None:
    assert WgmmaTiling.of(60, 2048, is_swiglu=False) is None
    assert WgmmaTiling.of(64, 96, is_swiglu=False) is None


@pytest.mark.slow
@pytest.mark.parametrize("is_float16", [False, True])
@pytest.mark.parametrize("size_in, size_out, is_swiglu", [SHAPES[2], SHAPES[7], SHAPES[8]])
def test_the_kernel_compiles(
    size_in: int, size_out: int, is_swiglu: bool, is_float16: bool, compiler: Callable[[str, dict[str, int]], bytes]
) -> None:
    for num_squares, is_sum in ((0, False), (0, True), (32, False)):
        product = WgmmaProduct(size_in, size_out, num_squares, is_swiglu, is_sum, is_sum, is_float16)
        macros = product.macros(product.tiling())
        assert compiler("gemm/wgmma_gemm.cu", macros)
    with pytest.raises(RuntimeError, match="inputs are shared equally"):
        compiler("gemm/wgmma_gemm.cu", macros | {"IN": 96})


@pytest.mark.gpu
@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size_in, size_out, is_swiglu", SHAPES)
@torch.inference_mode()
def test_products_equal_the_plain_ones(dtype: torch.dtype, size_in: int, size_out: int, is_swiglu: bool) -> None:
    torch.manual_seed(size_in + size_out)
    weight = (torch.randn(size_out * (2 if is_swiglu else 1), size_in, device="cuda") * size_in**-0.5).to(dtype)
    rows = torch.randn(MAX_ROWS, size_in, device="cuda").to(dtype)
    residuals = torch.randn(MAX_ROWS, size_out, device="cuda").to(dtype)
    for has_residual in (False, True):
        expected = rows.double() @ weight.double().T
        if is_swiglu:
            gate, up = expected.chunk(2, 1)
            expected = F.silu(gate) * up
        if has_residual:
            expected += residuals
        first = None
        for num_rows in NUM_ROWS:
            x, residual = rows[:num_rows], residuals[:num_rows]
            assert fits(x, weight, is_swiglu=is_swiglu)
            ours, _ = wgmma_gemm(x, weight, residual=residual if has_residual else None, is_swiglu=is_swiglu)
            error = (ours.double() - expected[:num_rows]).norm() / expected[:num_rows].norm()
            assert error < (6e-3 if dtype == torch.bfloat16 else 1e-3)
            first = ours[0].clone() if first is None else first
            assert torch.equal(ours[0], first), "a row is the same beside any others"


@pytest.mark.gpu
@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size_in, size, next_out, is_swiglu", [(2048, 1024, 3072, True), (6144, 2048, 4096, False)])
@torch.inference_mode()
def test_a_norm_that_is_split_in_two_is_the_plain_one(
    dtype: torch.dtype, size_in: int, size: int, next_out: int, is_swiglu: bool
) -> None:
    torch.manual_seed(size)
    plain_norm = RMSNorm(size, 1e-6)
    plain_norm.weight = torch.nn.Parameter((torch.rand(size, device="cuda") + 0.5).to(dtype), requires_grad=False)
    norm = Norm(plain_norm.weight, plain_norm.eps)
    weight = (torch.randn(size, size_in, device="cuda") * size_in**-0.5).to(dtype)
    next_weight = (torch.randn(next_out * (2 if is_swiglu else 1), size, device="cuda") * size**-0.5).to(dtype)
    for num_rows in NUM_ROWS:
        x = torch.randn(num_rows, size_in, device="cuda").to(dtype)
        residual = torch.randn(num_rows, size, device="cuda").to(dtype)
        total, scaled = linear_before_norm(x, weight, residual=residual, next_norm=norm)
        assert scaled is not None
        assert torch.equal(scaled.values, total * norm.weight)
        torch.testing.assert_close(scaled.squares.sum(1), total.float().square().sum(1), rtol=1e-5, atol=0)
        ours = linear(total, next_weight, norm=norm, scaled=scaled, is_swiglu=is_swiglu)
        expected = plain_norm(total).double() @ next_weight.double().T
        if is_swiglu:
            gate, up = expected.chunk(2, 1)
            expected = F.silu(gate) * up
        error = (ours.double() - expected).norm() / expected.norm()
        assert error < (6e-3 if dtype == torch.bfloat16 else 1e-3)


@pytest.mark.gpu
@pytest.mark.usefixtures("hopper")
@torch.inference_mode()
def test_few_rows_are_not_scaled() -> None:
    weight = torch.randn(1024, 2048, device="cuda").bfloat16()
    norm = Norm(torch.ones(1024, device="cuda").bfloat16(), 1e-6)
    x, residual = torch.randn(16, 2048, device="cuda").bfloat16(), torch.randn(16, 1024, device="cuda").bfloat16()
    assert linear_before_norm(x, weight, residual=residual, next_norm=norm)[1] is None
