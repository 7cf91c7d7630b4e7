"""Causal convolutions of the codec decoder as matrix products, with bias, residual sum and activation in one kernel.

See `sonorant.engine.kernels.codec.codec_layers` for the layout. The width of a tile is a sum of two powers of two, for
96 and 192 channels. Twins: `sonorant.engine.model.codec.code2wav`; the tests compare them.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from sonorant.engine.kernels.codec.codec_layers import Convolution, Snake
from sonorant.engine.kernels.overlap import launch_dependents, overlap, wait

WANTED_PROGRAMS = 400  # three for each multiprocessor of an H100 or H200
JOINED_POSITIONS, JOINED_OUTS = 4, 128  # outputs for which a program adds up the sums of splits
LEAST_STEPS = 8  # of a program that shares a tile with others; with fewer, adding up the sums takes longer


@dataclass(frozen=True, slots=True)
class Tile:
    """What one program computes: block_m positions times block_a + block_b outputs, block_k products at a time."""

    block_m: int
    block_a: int
    block_b: int
    block_k: int
    num_warps: int
    num_stages: int
    splits: int = 1  # programs that share the products of the same outputs

    @property
    def arguments(self) -> dict[str, int]:
        """Those of a kernel, without the splits."""
        sizes = {"BLOCK_M": self.block_m, "BLOCK_A": self.block_a, "BLOCK_B": self.block_b, "BLOCK_K": self.block_k}
        return sizes | {"num_warps": self.num_warps, "num_stages": self.num_stages}


def tile_for(num_positions: int, taps: int, channels_in: int, size_out: int) -> Tile:
    """Return the tile that was fastest in measurements on an NVIDIA H200 in float16."""
    size_in = taps * channels_in
    if num_positions * size_out < 1 << 20:
        block_out = min(32, size_out & -size_out)
        num_tiles = triton.cdiv(num_positions, 64) * triton.cdiv(size_out, block_out)
        splits = 1 if channels_in % 64 else _splits(num_tiles, size_in // 64)
        return Tile(64, block_out, 0, 64, 4, 4, splits)
    if size_in >= 2048 and num_positions * size_out >= 1 << 24:
        if size_out % 256 == 0 and size_in >= 3072:
            return Tile(128, 256, 0, 64, 8, 3)
        if size_out % 128 == 0:
            return Tile(256, 128, 0, 64, 8, 3)
    if size_out % 128 == 0:
        return Tile(128, 64 if taps == 1 else 128, 0, 64, 4, 3)
    if size_out % 192 == 0:
        return Tile(64, 128, 64, 64, 4, 3)
    if size_out % 96 == 0:
        return Tile(128, 64, 32, 64, 4, 3)
    return Tile(128, size_out & -size_out, 0, 64, 4, 3)


def _splits(num_tiles: int, num_steps: int) -> int:
    """How many programs share the steps of a tile equally, so that few tiles fill the GPU."""
    most = max(1, min(WANTED_PROGRAMS // num_tiles, num_steps // LEAST_STEPS))
    return next(n for n in range(most, 0, -1) if num_steps % n == 0)


def unit_tile_for(channels: int) -> Tile:
    """Return the fastest tile for `residual_unit`."""
    block_a = 1 << (channels.bit_length() - 1)
    block_k = 64 if channels % 64 == 0 else 32  # of one tap each, so that no product needs a mask
    return Tile(64 if channels > 128 else 128, block_a, channels - block_a, block_k, 4, 3)


def convolve(
    x: Tensor,
    convolution: Convolution,
    *,
    activation: Snake | None = None,
    residual: Tensor | None = None,
    plain: Tensor | None = None,
    activated: Tensor | None = None,
    tile: Tile | None = None,
) -> None:
    """Write the convolution of x [rows, kept + n, channels_in], plus `residual`, to `plain`, `activated` or both.

    `residual` is [rows, n * stride, channels_out]. The outputs are [rows, any + n * stride, channels_out]; their last
    n * stride positions are written. All tensors are contiguous, with channels that are multiples of 16.
    """
    c = convolution
    rows, x_positions, channels_in = x.shape
    size_out = c.matrix.shape[1]
    num_new = x_positions - c.num_kept
    tile = tile or tile_for(rows * num_new, c.taps, channels_in, size_out)
    num_tiles = triton.cdiv(rows * num_new, tile.block_m) * triton.cdiv(size_out, tile.block_a + tile.block_b)
    sums = x if tile.splits == 1 else x.new_empty(tile.splits, rows * num_new, size_out, dtype=torch.float32)
    finish = (
        c.bias,
        c.bias if activation is None else activation.frequency,
        c.bias if activation is None else activation.magnitude,
        x if residual is None else residual,
        x if plain is None else plain,
        x if activated is None else activated,
        rows * num_new,
        num_new,
        0 if plain is None else plain.shape[1],
        0 if activated is None else activated.shape[1],
    )
    shape = {
        "SIZE_OUT": size_out,
        "STRIDE": c.stride,
        "SPLITS": tile.splits,
        "HAS_RESIDUAL": residual is not None,
        "HAS_PLAIN": plain is not None,
        "HAS_ACTIVATED": activated is not None,
        "IS_CUDA": x.device.type != "cpu",  # on the meta device kernels are listed for a card
        **overlap(x),
    }
    _convolve[(num_tiles * tile.splits,)](
        x,
        c.matrix,
        sums,
        *finish,
        x_positions,
        c.dilation,
        CHANNELS_IN=channels_in,
        TAPS=c.taps,
        **tile.arguments,
        **shape,
    )
    if tile.splits > 1:
        grid = triton.cdiv(rows * num_new, JOINED_POSITIONS), triton.cdiv(size_out, JOINED_OUTS)
        _join_splits[grid](sums, *finish, BLOCK_M=JOINED_POSITIONS, BLOCK_N=JOINED_OUTS, num_warps=4, **shape)


def residual_unit(
    x: Tensor,
    convolutions: tuple[Convolution, Convolution],
    activations: tuple[Snake, Snake],
    *,
    residual: Tensor,
    plain: Tensor | None,
    activated: Tensor,
    taps: Tensor | None = None,
    tile: Tile | None = None,
) -> None:
    """Run the first convolution, activation and the second convolution (1 tap), and add `residual`, in one kernel.

    The result goes to `plain` and `activated` as in `convolve`. Channels are the same everywhere, padded, and at most
    MAX_UNIT_CHANNELS. With `taps` [channels, PRODUCT_CHANNELS], whose columns 8 to 15 repeat 0 to 7, `activated`
    [rows, any + n, PRODUCT_CHANNELS] gets the products of the activated positions with the taps instead: rounded in
    columns 0 to 7, with the rounding errors in columns 8 to 15.
    """
    first, second = convolutions
    rows, x_positions, channels = x.shape
    num_new = x_positions - first.num_kept
    tile = tile or unit_tile_for(channels)
    _residual_unit[(triton.cdiv(rows * num_new, tile.block_m),)](
        x,
        first.matrix,
        first.bias,
        activations[0].frequency,
        activations[0].magnitude,
        second.matrix,
        second.bias,
        activations[1].frequency,
        activations[1].magnitude,
        residual,
        x if taps is None else taps,
        x if plain is None else plain,
        activated,
        rows * num_new,
        num_new,
        x_positions,
        0 if plain is None else plain.shape[1],
        activated.shape[1],
        first.dilation,
        CHANNELS=channels,
        TAPS=first.taps,
        HAS_PLAIN=plain is not None,
        HAS_PRODUCTS=taps is not None,
        IS_CUDA=x.device.type != "cpu",
        **tile.arguments,
        **overlap(x),
    )


@triton.jit
def _snake(x, frequency, magnitude, n, inside, IS_CUDA: tl.constexpr):
    angle = x * tl.load(frequency + n, mask=inside, other=0.0)[None, :]
    if IS_CUDA:
        # One instruction of the special-function unit, exact to 2^-20; Triton's own sine takes twenty or more.
        wave = tl.inline_asm_elementwise("sin.approx.f32 $0, $1;", "=f,f", [angle], tl.float32, is_pure=True, pack=1)
    else:
        wave = tl.sin(angle)
    return x + wave * wave * tl.load(magnitude + n, mask=inside, other=0.0)[None, :]


@triton.jit
def _inputs(
    x, first, step, dilation,
    CHANNELS: tl.constexpr, TAPS: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Load [positions, BLOCK_K] of the inputs that the taps see, all taps' channels as one row; `first` is where the
    inputs of each position begin."""
    if CHANNELS % BLOCK_K == 0:
        start = step * BLOCK_K
        column = start + start // CHANNELS * (dilation - 1) * CHANNELS + tl.arange(0, BLOCK_K)
        return tl.load(x + first[:, None] + column[None, :])
    else:
        k = step * BLOCK_K + tl.arange(0, BLOCK_K)
        column = k // CHANNELS * dilation * CHANNELS + k % CHANNELS
        return tl.load(x + first[:, None] + column[None, :], mask=(k < TAPS * CHANNELS)[None, :], other=0.0)


@triton.jit
def _factors(
    matrix, k, n,
    SIZE_IN: tl.constexpr, SIZE_OUT: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    at = matrix + k[:, None] * SIZE_OUT + n[None, :]
    if SIZE_IN % BLOCK_K == 0 and SIZE_OUT % BLOCK_N == 0:
        return tl.load(at)
    else:
        return tl.load(at, mask=(k < SIZE_IN)[:, None] & (n < SIZE_OUT)[None, :], other=0.0)


@triton.jit
def _store(
    buffer, value, m, n, is_inside, num_new, buffer_positions, STRIDE: tl.constexpr, CHANNELS: tl.constexpr
):  # fmt: skip
    """Store outputs n of inputs m in an extended buffer; its new positions are the last num_new * STRIDE."""
    position = (m // num_new + 1) * buffer_positions - (num_new - m % num_new) * STRIDE
    at = buffer + position[:, None] * CHANNELS + n[None, :]
    tl.store(at, value.to(buffer.dtype.element_ty), mask=is_inside)


@triton.jit
def _finish(
    total, n, m, num_positions, num_new, bias, frequency, magnitude, residual, plain, activated,
    plain_positions, activated_positions,
    SIZE_OUT: tl.constexpr, STRIDE: tl.constexpr, HAS_RESIDUAL: tl.constexpr, HAS_PLAIN: tl.constexpr,
    HAS_ACTIVATED: tl.constexpr, IS_CUDA: tl.constexpr,
):  # fmt: skip
    """Add bias and residual to `total` [positions m, outputs n] and store it. Returns it, activated if `activated` is
    stored."""
    CHANNELS: tl.constexpr = SIZE_OUT // STRIDE
    is_output = n < SIZE_OUT
    is_inside = (m < num_positions)[:, None] & is_output[None, :]
    total += tl.load(bias + n, mask=is_output, other=0.0)[None, :]
    if HAS_RESIDUAL:
        total += tl.load(residual + m[:, None] * SIZE_OUT + n[None, :], mask=is_inside, other=0.0).to(tl.float32)
    if HAS_PLAIN:
        _store(plain, total, m, n, is_inside, num_new, plain_positions, STRIDE, CHANNELS)
    if HAS_ACTIVATED:
        total = _snake(total, frequency, magnitude, n, is_output, IS_CUDA)
        _store(activated, total, m, n, is_inside, num_new, activated_positions, STRIDE, CHANNELS)
    return total


# Do not specialize on the counts of positions: there are many, and one compiled kernel is to serve all of them.
@triton.jit(
    do_not_specialize=[
        "num_positions", "num_new", "x_positions", "plain_positions", "activated_positions", "dilation",
    ]
)  # fmt: skip
def _convolve(
    x, matrix, sums, bias, frequency, magnitude, residual, plain, activated,
    num_positions, num_new, plain_positions, activated_positions, x_positions, dilation,
    CHANNELS_IN: tl.constexpr, SIZE_OUT: tl.constexpr, TAPS: tl.constexpr, STRIDE: tl.constexpr, SPLITS: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr, HAS_PLAIN: tl.constexpr, HAS_ACTIVATED: tl.constexpr, IS_CUDA: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_K: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    if OVERLAP:
        launch_dependents()
        wait()
    SIZE_IN: tl.constexpr = TAPS * CHANNELS_IN
    BLOCK_N: tl.constexpr = BLOCK_A + BLOCK_B
    NUM_N: tl.constexpr = (SIZE_OUT + BLOCK_N - 1) // BLOCK_N
    SHARE: tl.constexpr = (SIZE_IN + BLOCK_K * SPLITS - 1) // (BLOCK_K * SPLITS)  # steps of a split
    tile, split = tl.program_id(0) // SPLITS, tl.program_id(0) % SPLITS
    m = tile // NUM_N * BLOCK_M + tl.arange(0, BLOCK_M)
    n_a = tile % NUM_N * BLOCK_N + tl.arange(0, BLOCK_A)
    n_b = tile % NUM_N * BLOCK_N + BLOCK_A + tl.arange(0, BLOCK_B if BLOCK_B else 1)
    read = tl.minimum(m, num_positions - 1)
    first = (read // num_new * x_positions + read % num_new) * CHANNELS_IN
    total_a = tl.zeros([BLOCK_M, BLOCK_A], tl.float32)
    if BLOCK_B:
        total_b = tl.zeros([BLOCK_M, BLOCK_B], tl.float32)
    for i in range(SHARE):
        step = split * SHARE + i
        k = step * BLOCK_K + tl.arange(0, BLOCK_K)
        seen = _inputs(x, first, step, dilation, CHANNELS_IN, TAPS, BLOCK_K)
        factors = _factors(matrix, k, n_a, SIZE_IN, SIZE_OUT, BLOCK_K, BLOCK_N)
        total_a = tl.dot(seen, factors, total_a, input_precision="ieee")
        if BLOCK_B:
            factors = _factors(matrix, k, n_b, SIZE_IN, SIZE_OUT, BLOCK_K, BLOCK_N)
            total_b = tl.dot(seen, factors, total_b, input_precision="ieee")
    if SPLITS > 1:
        at = sums + (split * num_positions + m)[:, None].to(tl.int64) * SIZE_OUT + n_a[None, :]
        tl.store(at, total_a, mask=(m < num_positions)[:, None] & (n_a < SIZE_OUT)[None, :])
    else:
        _finish(
            total_a, n_a, m, num_positions, num_new, bias, frequency, magnitude, residual, plain, activated,
            plain_positions, activated_positions, SIZE_OUT, STRIDE, HAS_RESIDUAL, HAS_PLAIN, HAS_ACTIVATED, IS_CUDA,
        )  # fmt: skip
    if BLOCK_B:
        _finish(
            total_b, n_b, m, num_positions, num_new, bias, frequency, magnitude, residual, plain, activated,
            plain_positions, activated_positions, SIZE_OUT, STRIDE, HAS_RESIDUAL, HAS_PLAIN, HAS_ACTIVATED, IS_CUDA,
        )  # fmt: skip


@triton.jit(do_not_specialize=["num_positions", "num_new", "plain_positions", "activated_positions"])
def _join_splits(
    sums, bias, frequency, magnitude, residual, plain, activated,
    num_positions, num_new, plain_positions, activated_positions,
    SIZE_OUT: tl.constexpr, STRIDE: tl.constexpr, SPLITS: tl.constexpr, HAS_RESIDUAL: tl.constexpr,
    HAS_PLAIN: tl.constexpr, HAS_ACTIVATED: tl.constexpr, IS_CUDA: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    if OVERLAP:
        launch_dependents()
        wait()
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (m < num_positions)[:, None] & (n < SIZE_OUT)[None, :]
    total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for split in tl.static_range(SPLITS):
        at = sums + (split * num_positions + m)[:, None].to(tl.int64) * SIZE_OUT + n[None, :]
        total += tl.load(at, mask=inside, other=0.0)
    _finish(
        total, n, m, num_positions, num_new, bias, frequency, magnitude, residual, plain, activated,
        plain_positions, activated_positions, SIZE_OUT, STRIDE, HAS_RESIDUAL, HAS_PLAIN, HAS_ACTIVATED, IS_CUDA,
    )  # fmt: skip


@triton.jit(
    do_not_specialize=[
        "num_positions", "num_new", "x_positions", "plain_positions", "activated_positions", "dilation",
    ]
)  # fmt: skip
def _residual_unit(
    x, matrix, bias, frequency, magnitude, matrix_2, bias_2, frequency_2, magnitude_2, residual, taps,
    plain, activated, num_positions, num_new, x_positions, plain_positions, activated_positions, dilation,
    CHANNELS: tl.constexpr, TAPS: tl.constexpr, HAS_PLAIN: tl.constexpr, HAS_PRODUCTS: tl.constexpr,
    IS_CUDA: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_K: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    if OVERLAP:
        launch_dependents()
        wait()
    SIZE_IN: tl.constexpr = TAPS * CHANNELS
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n_a = tl.arange(0, BLOCK_A)
    n_b = BLOCK_A + tl.arange(0, BLOCK_B if BLOCK_B else 1)
    read = tl.minimum(m, num_positions - 1)
    first = (read // num_new * x_positions + read % num_new) * CHANNELS
    total_a = tl.zeros([BLOCK_M, BLOCK_A], tl.float32)
    if BLOCK_B:
        total_b = tl.zeros([BLOCK_M, BLOCK_B], tl.float32)
    for step in range((SIZE_IN + BLOCK_K - 1) // BLOCK_K):
        k = step * BLOCK_K + tl.arange(0, BLOCK_K)
        seen = _inputs(x, first, step, dilation, CHANNELS, TAPS, BLOCK_K)
        factors = _factors(matrix, k, n_a, SIZE_IN, CHANNELS, BLOCK_K, CHANNELS)
        total_a = tl.dot(seen, factors, total_a, input_precision="ieee")
        if BLOCK_B:
            factors = _factors(matrix, k, n_b, SIZE_IN, CHANNELS, BLOCK_K, CHANNELS)
            total_b = tl.dot(seen, factors, total_b, input_precision="ieee")

    dtype = x.dtype.element_ty
    total_a += tl.load(bias + n_a)[None, :]
    hidden_a = _snake(total_a, frequency, magnitude, n_a, n_a < CHANNELS, IS_CUDA).to(dtype)
    if BLOCK_B:
        total_b += tl.load(bias + n_b)[None, :]
        hidden_b = _snake(total_b, frequency, magnitude, n_b, n_b < CHANNELS, IS_CUDA).to(dtype)
    # Use pieces of equal width: with Triton 3.6, a product 32 wide after one 64 wide is wrong (the second one's factors
    # are read from a wrong place).
    WIDTH: tl.constexpr = BLOCK_B if BLOCK_B else BLOCK_A
    tap = tl.arange(0, 16)
    products = tl.zeros([BLOCK_M, 16], tl.float32)
    for start in tl.static_range(0, CHANNELS, WIDTH):
        n = start + tl.arange(0, WIDTH)
        factors = tl.load(matrix_2 + n_a[:, None] * CHANNELS + n[None, :])
        out = tl.dot(hidden_a, factors, input_precision="ieee")
        if BLOCK_B:
            factors = tl.load(matrix_2 + n_b[:, None] * CHANNELS + n[None, :])
            out = tl.dot(hidden_b, factors, out, input_precision="ieee")
        out = _finish(
            out, n, m, num_positions, num_new, bias_2, frequency_2, magnitude_2, residual, plain, activated,
            plain_positions, activated_positions, CHANNELS, 1, True, HAS_PLAIN, not HAS_PRODUCTS, IS_CUDA,
        )  # fmt: skip
        if HAS_PRODUCTS:
            out = _snake(out, frequency_2, magnitude_2, n, n < CHANNELS, IS_CUDA).to(dtype)
            factors = tl.load(taps + n[:, None] * 16 + tap[None, :])
            products = tl.dot(out, factors, products, input_precision="ieee")
    if HAS_PRODUCTS:
        rounded = products.to(dtype).to(tl.float32)
        products = tl.where(tap[None, :] < 8, rounded, products - rounded)
        is_inside = (m < num_positions)[:, None] & (tap >= 0)[None, :]
        _store(activated, products, m, tap, is_inside, num_new, activated_positions, 1, 16)
