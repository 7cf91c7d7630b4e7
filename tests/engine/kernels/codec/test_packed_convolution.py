"""Convolutions in CUDA C++ against those in Triton, on a Hopper GPU; how weights are packed, anywhere."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton comes with the CUDA builds of torch, and with the extra `dev`")

from sonorant.engine.kernels.codec.codec_layers import Convolution, Snake
from sonorant.engine.kernels.codec.convolution import convolve, residual_unit
from sonorant.engine.kernels.codec.packed_convolution import (
    BLOCK_OUTS,
    SHARED_BYTES,
    PackedConvolution,
    PackedUnit,
    eights_of_a_thread,
    macros_of,
    pack_matrix,
    pack_parameters,
)
from sonorant.engine.kernels.codec.resident_unit import ResidentUnit, shared_bytes
from sonorant.engine.kernels.codec.resident_unit import macros_of as resident_macros_of

Compiler = Callable[[str, dict[str, int]], bytes]
TOLERANCE = 0.01  # outputs are below 16: a rounding of float16 is half of it


def test_a_thread_has_eight_outputs_next_to_each_other() -> None:
    columns = eights_of_a_thread(96)
    assert sorted(columns.tolist()) == list(range(96))
    for thread in range(4):
        own = columns.view(-1, 8)[:, 2 * thread : 2 * thread + 2].reshape(-1, 8)
        assert (own == own[:, :1] + torch.arange(8)).all()


def test_packed_weights_come_by_window_tap_and_piece() -> None:
    taps, channels_in, size_out = 3, 128, 32
    matrix = torch.arange(taps * channels_in * size_out).view(-1, size_out)
    packed = pack_matrix(matrix, taps).view(channels_in // 64, taps, 8, size_out, 8)
    columns = eights_of_a_thread(size_out)
    for window, tap, piece, column, channel in ((0, 0, 0, 0, 0), (1, 2, 7, 31, 7), (1, 0, 3, 9, 5)):
        row = tap * channels_in + window * 64 + piece * 8 + channel
        assert packed[window, tap, piece, column, channel] == matrix[row, columns[column]]


def test_packed_parameters_have_the_columns_of_the_weights() -> None:
    bias, frequency, magnitude = torch.arange(32.0), torch.arange(32.0) + 100, torch.arange(32.0) + 200
    packed = pack_parameters(bias, Snake(frequency, magnitude)).view(3, 32)
    assert torch.equal(packed, eights_of_a_thread(32) + torch.tensor([[0.0], [100.0], [200.0]]))


@pytest.mark.slow
def test_convolutions_compile(compiler: Compiler) -> None:
    for channels_in, size_out, dilation, block_out in zip(
        (1024, 384, 768), (1536, 384, 768), (1, 3, 9), BLOCK_OUTS, strict=True
    ):
        macros = macros_of(channels_in, size_out, 7, dilation, block_out, is_unit=False, has_plain=False)
        assert compiler("codec/packed_convolution.cu", macros)
    with pytest.raises(RuntimeError, match="no rest"):
        compiler("codec/packed_convolution.cu", macros | {"SIZE_OUT": 800})


@pytest.mark.slow
@pytest.mark.parametrize(("dilation", "has_plain"), [(1, True), (9, False)])
def test_units_compile(dilation: int, has_plain: bool, compiler: Compiler) -> None:
    assert compiler(
        "codec/packed_convolution.cu", macros_of(192, 192, 7, dilation, 192, is_unit=True, has_plain=has_plain)
    )
    for has_taps in (False, True):
        assert shared_bytes(dilation, has_taps) <= SHARED_BYTES
        assert compiler("codec/resident_unit.cu", resident_macros_of(dilation, has_plain=has_plain, has_taps=has_taps))


def random_convolution(channels_in: int, size_out: int, taps: int, dilation: int) -> Convolution:
    matrix = torch.randn(taps * channels_in, size_out, device="cuda") / (taps * channels_in) ** 0.5
    return Convolution(matrix.half(), torch.randn(size_out, device="cuda"), taps, dilation)


def random_snake(size_out: int) -> Snake:
    return Snake(torch.rand(size_out, device="cuda") * 3, torch.rand(size_out, device="cuda"))


def inputs(rows: int, positions: int, channels: int) -> Tensor:
    return torch.randn(rows, positions, channels, device="cuda").half()


def buffer(rows: int, positions: int, channels: int) -> Tensor:
    return torch.full((rows, positions, channels), 7.0, device="cuda", dtype=torch.float16)


@pytest.mark.gpu
@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize(("channels_in", "size_out", "dilation"), [(64, 192, 1), (384, 384, 9), (768, 768, 3)])
@pytest.mark.parametrize(("rows", "num_new"), [(1, 1), (3, 45), (5, 256), (64, 96)])
def test_packed_convolution(channels_in: int, size_out: int, dilation: int, rows: int, num_new: int) -> None:
    c, snake = random_convolution(channels_in, size_out, 7, dilation), random_snake(size_out)
    x = inputs(rows, c.num_kept + num_new, channels_in)
    ours, twin = buffer(rows, 5 + num_new, size_out), buffer(rows, 5 + num_new, size_out)
    packed = PackedConvolution.of(c, snake)
    assert packed is not None
    packed.run(x, activated=ours)
    convolve(x, c, activation=snake, activated=twin)
    torch.testing.assert_close(ours, twin, rtol=0, atol=TOLERANCE)


@pytest.mark.gpu
@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize(("channels", "kind"), [(96, ResidentUnit), (192, PackedUnit)])
@pytest.mark.parametrize("dilation", [1, 3, 9])
@pytest.mark.parametrize(("rows", "num_new", "has_plain"), [(1, 128, True), (3, 640, False), (70, 1920, True)])
def test_residual_unit(
    channels: int,
    kind: type[ResidentUnit | PackedUnit],
    dilation: int,
    rows: int,
    num_new: int,
    has_plain: bool,
) -> None:
    convolutions = random_convolution(channels, channels, 7, dilation), random_convolution(channels, channels, 1, 1)
    snakes = random_snake(channels), random_snake(channels)
    x, residual = inputs(rows, 6 * dilation + num_new, channels), inputs(rows, num_new, channels)
    ours, twin = buffer(rows, 6 + num_new, channels), buffer(rows, 6 + num_new, channels)
    our_plain, twin_plain = (buffer(rows, num_new, channels) if has_plain else None for _ in range(2))
    packed = kind.of(convolutions, snakes)
    assert packed is not None and (kind is PackedUnit or packed.suits(x))
    packed.run(x, residual=residual, plain=our_plain, activated=ours)
    residual_unit(x, convolutions, snakes, residual=residual, plain=twin_plain, activated=twin)
    torch.testing.assert_close(ours, twin, rtol=0, atol=TOLERANCE)
    if our_plain is not None:
        torch.testing.assert_close(our_plain, twin_plain, rtol=0, atol=TOLERANCE)


@pytest.mark.gpu
@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("rows", [1, 70])
def test_products_of_the_last_taps(rows: int) -> None:
    channels, num_new = 96, 1920
    convolutions = random_convolution(channels, channels, 7, 9), random_convolution(channels, channels, 1, 1)
    snakes, taps = (random_snake(channels), random_snake(channels)), (inputs(1, channels, 8)[0] / 10).repeat(1, 2)
    x, residual = inputs(rows, 54 + num_new, channels), inputs(rows, num_new, channels)
    ours, twin = buffer(rows, 6 + num_new, 16), buffer(rows, 6 + num_new, 16)
    packed = ResidentUnit.of(convolutions, snakes, taps)
    assert packed is not None
    packed.run(x, residual=residual, plain=None, activated=ours)
    residual_unit(x, convolutions, snakes, residual=residual, plain=None, activated=twin, taps=taps)
    assert (ours[:, :6] == 7.0).all()
    exact = [products[:, 6:, :8].double() + products[:, 6:, 8:].double() for products in (ours, twin)]
    torch.testing.assert_close(*exact, rtol=0, atol=TOLERANCE)
    assert ours[:, 6:, 8:].abs().max() < 0.01
