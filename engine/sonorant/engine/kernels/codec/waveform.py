"""The end of the codec decoder's last convolution: sums the products of its taps to samples."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from sonorant.engine.kernels.codec.codec_layers import PRODUCT_CHANNELS
from sonorant.engine.kernels.overlap import launch_dependents, overlap, wait

BLOCK = 256  # samples per program


def waveform(products: Tensor, bias: Tensor, num_taps: int) -> Tensor:
    """Return samples [rows, n] in +-1, float32, from products [rows, num_taps - 1 + n, PRODUCT_CHANNELS], which
    `residual_unit` makes.

    A sample is the bias [1], float32, plus the product of each tap at the position that the tap sees: the oldest tap at
    the oldest position, and so on. Twin: the last convolution of `sonorant.engine.model.codec.code2wav.Code2Wav`.
    """
    rows, positions, _ = products.shape
    num_new = positions - num_taps + 1
    out = torch.empty(rows, num_new, dtype=torch.float32, device=products.device)
    _waveform[(triton.cdiv(rows * num_new, BLOCK),)](
        products,
        bias,
        out,
        rows * num_new,
        num_new,
        TAPS=num_taps,
        CHANNELS=PRODUCT_CHANNELS,
        BLOCK=BLOCK,
        num_warps=4,
        **overlap(products),
    )
    return out


@triton.jit(do_not_specialize=["num_samples", "num_new"])
def _waveform(
    products, bias, out, num_samples, num_new, TAPS: tl.constexpr, CHANNELS: tl.constexpr, BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr,
):  # fmt: skip
    if OVERLAP:
        launch_dependents()
        wait()
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < num_samples
    first = (at // num_new * (num_new + TAPS - 1) + at % num_new) * CHANNELS
    total = tl.zeros([BLOCK], tl.float32) + tl.load(bias)
    for tap in tl.static_range(TAPS):
        product = products + first + tap * (CHANNELS + 1)  # of this tap, one position after the tap before
        total += tl.load(product, mask=inside, other=0.0).to(tl.float32)
        total += tl.load(product + CHANNELS // 2, mask=inside, other=0.0).to(tl.float32)  # its rounding error
    tl.store(out + at, tl.minimum(tl.maximum(total, -1.0), 1.0), mask=inside)
