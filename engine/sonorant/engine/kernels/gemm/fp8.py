"""Weights of one byte: float8 e4m3, with a power of two for each output.

A value of e4m3 (four significant bits) times a power of two is exact in bfloat16, float16 and float32. So weights are
first rounded where they are, and whoever reads two or four bytes of each computes with the same numbers.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

E4M3 = torch.float8_e4m3fn
LARGEST = 448.0  # of e4m3
SMALLEST_BITS = 9  # the smallest value of e4m3 is 2**-9
LEAST_EXPONENT = -120  # of a scale; such a row is zero for all that it matters


def rounded(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Round each row to float8 e4m3 times a power of two, the least with which the largest magnitude is in range.

    weight [size out, size in] -> values [size out, size in] float8_e4m3fn, scales [size out] float32. Values times
    scales are exact in the dtype of `weight`, and come out the same if they are rounded again.
    """
    wide = weight.float()
    largest = wide.abs().amax(1)
    mantissas, exponents = torch.frexp(largest / LARGEST)  # mantissa in [0.5, 1)
    exponents = torch.where(mantissas == 0.5, exponents - 1, exponents)
    scales = torch.ldexp(torch.ones_like(largest), exponents.clamp(min=_least_exponent(weight.dtype)))
    return (wide / scales[:, None]).to(E4M3), scales


def round_in_place(weight: Tensor) -> None:
    """Replace a weight [size out, size in] by what `rounded` makes of it, in its own dtype and memory."""
    values, scales = rounded(weight)
    weight.copy_(values.float() * scales[:, None])


def _least_exponent(dtype: torch.dtype) -> int:
    """Return the least exponent of a scale with which the smallest e4m3 value is exact in `dtype`."""
    limits = torch.finfo(dtype)
    return max(LEAST_EXPONENT, round(math.log2(limits.smallest_normal) + math.log2(limits.eps)) + SMALLEST_BITS)


@dataclass(frozen=True, slots=True)
class Fp8Weight:
    """A weight as skinny_gemm.cu reads it."""

    lines: Tensor  # [size out / 2, size in * 2] uint8; see `_lines`
    scales: Tensor  # [size out] float32

    @classmethod
    def of(cls, weight: Tensor) -> "Fp8Weight | None":
        """Return the bytes of a weight [size out, size in] that is rounded already; None if the sizes do not allow
        it, and then no kernel for them exists."""
        size_out, size_in = weight.shape
        if size_out % 4 or size_in % 8:
            return None
        values, scales = rounded(weight)
        return cls(_lines(values.view(torch.uint8)), scales)


def _lines(values: Tensor) -> Tensor:
    """Put rows n and n + 2 of each four into one line, eight bytes of each in turn: a thread reads both at once."""
    size_out, size_in = values.shape
    fours = values.view(size_out // 4, 2, 2, size_in // 8, 8)  # four, half, row of the half, piece, byte
    return fours.permute(0, 2, 3, 1, 4).reshape(size_out // 2, size_in * 2)
