"""Weights rounded to float8: which values come out, that they are exact in every dtype, and how their bytes lie."""

import pytest
import torch

from sonorant.engine.kernels.gemm.fp8 import E4M3, LARGEST, Fp8Weight, round_in_place, rounded

DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def all_values() -> torch.Tensor:
    """Every finite value of e4m3, the subnormal ones and both zeros among them: [254] float32."""
    values = torch.arange(256, dtype=torch.uint8).view(E4M3).float()
    return values[values.isfinite()]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("exponent", [-12, -3, 0, 5])
def test_values_that_e4m3_has_survive(dtype: torch.dtype, exponent: int) -> None:
    weight = (all_values() * 2.0**exponent)[None].to(dtype)
    values, scales = rounded(weight)
    assert values.dtype == E4M3 and scales.tolist() == [2.0**exponent]
    kept = weight.clone()
    round_in_place(kept)
    assert torch.equal(kept, weight)


def test_the_largest_of_a_row_is_in_range_and_scales_are_the_least_powers_of_two() -> None:
    weight = torch.zeros(6, 8)
    weight[:, 3] = torch.tensor([448.0, -448.5, 224.0, 225.0, 1e-3, 0.0])
    values, scales = rounded(weight)
    assert scales.tolist() == [1.0, 2.0, 0.5, 1.0, 2.0**-18, 1.0]
    assert values.float().abs().max() <= LARGEST
    assert values[5].float().tolist() == [0.0] * 8


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_error_is_bounded_and_the_result_is_exact(dtype: torch.dtype) -> None:
    weight = (torch.randn(64, 512) * torch.logspace(-6, 1, 64)[:, None]).to(dtype)
    values, scales = rounded(weight)
    product = values.float() * scales[:, None]
    assert torch.equal(product.to(dtype).float(), product)
    error = (product - weight.float()).abs()
    is_normal = weight.float().abs() >= scales[:, None] * 2.0**-6
    assert (error <= weight.float().abs() * 2.0**-4)[is_normal].all()
    assert (error <= scales[:, None] * 2.0**-10).logical_or(is_normal).all(), "half a step of the subnormal values"


@pytest.mark.parametrize("dtype", DTYPES)
def test_rounding_twice_is_rounding_once(dtype: torch.dtype) -> None:
    weight = (torch.randn(64, 512) * 0.03).to(dtype)
    weight[0] = torch.linspace(-230, 230, 512)  # rounded, its largest is 224: the scale becomes half as large
    round_in_place(weight)
    values, scales = rounded(weight)
    assert torch.equal(values.float() * scales[:, None], weight.float())


def test_tiny_values_do_not_break_it() -> None:
    weight = torch.tensor([[1e-38, 0.0], [1e-45, 1e-45], [1e-20, -1e-20]]).bfloat16()
    values, scales = rounded(weight)
    product = values.float() * scales[:, None]
    assert product.isfinite().all() and torch.equal(product.bfloat16().float(), product)
    assert product[2, 0] > 0


def test_weights_stored_by_column_stay_so() -> None:
    weight = torch.randn(8, 16).t().contiguous().t()
    expected = weight.clone()
    round_in_place(expected)
    before = weight.stride()
    round_in_place(weight)
    assert weight.stride() == before and torch.equal(weight, expected)


def test_a_line_has_two_rows_eight_bytes_of_each_in_turn() -> None:
    weight = torch.randn(24, 64).bfloat16()
    round_in_place(weight)
    fp8 = Fp8Weight.of(weight)
    assert fp8 is not None and fp8.lines.shape == (12, 128) and fp8.lines.is_contiguous()
    values = rounded(weight)[0].view(torch.uint8)
    for row in range(24):
        line = fp8.lines[row // 4 * 2 + row % 2].view(8, 2, 8)
        assert torch.equal(line[:, row // 2 % 2].flatten(), values[row])


def test_sizes_that_no_kernel_has() -> None:
    assert Fp8Weight.of(torch.ones(6, 64)) is None
    assert Fp8Weight.of(torch.ones(8, 60)) is None
