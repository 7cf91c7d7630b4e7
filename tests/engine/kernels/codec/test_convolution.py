"""Convolutions as matrix products against PyTorch's: on a GPU where there is one, else through Triton's interpreter."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

pytest.importorskip("triton", reason="Triton comes with the CUDA builds of torch, and with the extra `dev`")

from sonorant.engine.kernels.codec.codec_layers import Convolution, Snake, padded_channels
from sonorant.engine.kernels.codec.convolution import Tile, convolve, residual_unit, tile_for
from tests.engine.kernels.half_precision import DEVICE, DTYPE, TOLERANCE, randn

pytestmark = pytest.mark.slow

ROWS = 2


def random_convolution(channels_in: int, size_out: int, taps: int, dilation: int, stride: int = 1) -> Convolution:
    matrix = randn(taps * channels_in, size_out) / (taps * channels_in) ** 0.5
    return Convolution(matrix, torch.randn(size_out, device=DEVICE), taps, dilation, stride)


def random_snake(size_out: int) -> Snake:
    return Snake(torch.rand(size_out, device=DEVICE) * 3, torch.rand(size_out, device=DEVICE))


def plain_convolution(x: Tensor, c: Convolution) -> Tensor:
    weight = c.matrix.unflatten(0, (c.taps, -1)).permute(2, 1, 0)  # [out, in, taps]
    y = F.conv1d(x.transpose(1, 2).double(), weight.double(), c.bias.double(), dilation=c.dilation)
    return y.transpose(1, 2).reshape(len(x), -1, c.matrix.shape[1] // c.stride)


def plain_snake(x: Tensor, snake: Snake, channels: int) -> Tensor:
    wave = torch.sin(x.unflatten(1, (-1, len(snake.frequency) // channels)).flatten(2) * snake.frequency)
    return x + (wave.square() * snake.magnitude).view_as(x)


def buffer(num_kept: int, num_new: int, channels: int) -> Tensor:
    return torch.full((ROWS, num_kept + num_new, channels), 7.0, device=DEVICE, dtype=DTYPE)


def assert_written(ours: Tensor, twin: Tensor, num_kept: int) -> None:
    assert (ours[:, :num_kept] == 7.0).all()
    torch.testing.assert_close(ours[:, num_kept:].double(), twin, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("channels_in", "channels_out", "taps", "dilation", "stride"),
    [(16, 16, 1, 1, 1), (32, 96, 7, 1, 1), (48, 32, 7, 9, 1), (48, 48, 3, 3, 1), (32, 16, 2, 1, 3)],
)
@pytest.mark.parametrize(
    ("num_new", "tile"),
    [
        (21, None),
        (21, Tile(32, 64, 32, 64, 4, 2)),
        (21, Tile(16, 16, 0, 32, 4, 2)),
        (32, Tile(32, 16, 0, 16, 4, 2)),  # each tile within a row
        (64, Tile(64, 32, 16, 16, 4, 2)),
    ],
)
def test_convolve(
    channels_in: int, channels_out: int, taps: int, dilation: int, stride: int, num_new: int, tile: Tile | None
) -> None:
    c = random_convolution(channels_in, channels_out * stride, taps, dilation, stride)
    snake = random_snake(channels_out * stride)
    x = randn(ROWS, c.num_kept + num_new, channels_in)
    residual = randn(ROWS, num_new * stride, channels_out)
    expected = plain_convolution(x, c)

    plain = buffer(2, num_new * stride, channels_out)
    convolve(x, c, plain=plain, tile=tile)
    assert_written(plain, expected, 2)

    plain, activated = buffer(0, num_new * stride, channels_out), buffer(5, num_new * stride, channels_out)
    convolve(x, c, activation=snake, residual=residual, plain=plain, activated=activated, tile=tile)
    assert_written(plain, expected + residual, 0)
    assert_written(activated, plain_snake(expected + residual, snake, channels_out), 5)


@pytest.mark.parametrize("splits", [2, 7])
def test_programs_share_the_products_of_an_output(splits: int) -> None:
    c, snake = random_convolution(32, 48, 7, 3), random_snake(48)
    x, residual = randn(ROWS, c.num_kept + 21, 32), randn(ROWS, 21, 48)
    expected = plain_convolution(x, c) + residual
    plain, activated = buffer(0, 21, 48), buffer(5, 21, 48)
    tile = Tile(32, 16, 0, 16, 4, 2, splits)
    convolve(x, c, activation=snake, residual=residual, plain=plain, activated=activated, tile=tile)
    assert_written(plain, expected, 0)
    assert_written(activated, plain_snake(expected, snake, 48), 5)


def test_few_tiles_are_shared_out() -> None:
    assert tile_for(32, 7, 768, 768).splits == 7
    assert tile_for(4, 7, 1024, 1536).splits == 8
    assert tile_for(32, 7, 48, 768).splits == 1, "a step would have channels of two taps"
    assert tile_for(32, 1, 768, 768).splits == 1
    assert tile_for(32 * 64, 7, 768, 768).splits == 1


@pytest.mark.parametrize(("channels", "dilation"), [(16, 1), (48, 9), (96, 3)])
@pytest.mark.parametrize(("num_new", "has_plain"), [(45, True), (45, False), (128, True)])
def test_residual_unit(channels: int, dilation: int, num_new: int, has_plain: bool) -> None:
    first = random_convolution(channels, channels, 7, dilation)
    second = random_convolution(channels, channels, 1, 1)
    snakes = random_snake(channels), random_snake(channels)
    x = randn(ROWS, first.num_kept + num_new, channels)
    residual = randn(ROWS, num_new, channels)
    hidden = plain_snake(plain_convolution(x, first), snakes[0], channels)
    expected = plain_convolution(hidden, second) + residual
    plain = buffer(0, num_new, channels) if has_plain else None
    activated = buffer(6, num_new, channels)
    residual_unit(x, (first, second), snakes, residual=residual, plain=plain, activated=activated)
    if plain is not None:
        assert_written(plain, expected, 0)
    assert_written(activated, plain_snake(expected, snakes[1], channels), 6)


def test_products_of_the_last_taps() -> None:
    channels, num_new = 96, 45
    first, second = random_convolution(channels, channels, 7, 3), random_convolution(channels, channels, 1, 1)
    snakes = random_snake(channels), random_snake(channels)
    x = randn(ROWS, first.num_kept + num_new, channels)
    residual, taps = randn(ROWS, num_new, channels), randn(channels, 8) / 10
    hidden = plain_snake(plain_convolution(x, first), snakes[0], channels)
    expected = plain_snake(plain_convolution(hidden, second) + residual, snakes[1], channels) @ taps.double()
    products = buffer(6, num_new, 16)
    residual_unit(x, (first, second), snakes, residual=residual, plain=None, activated=products, taps=taps.repeat(1, 2))
    assert (products[:, :6] == 7.0).all()
    rounded, rest = products[:, 6:].double().split(8, -1)
    torch.testing.assert_close(rounded + rest, expected, rtol=0, atol=TOLERANCE)
    assert rest.abs().max() < 0.01


def test_padded_channels() -> None:
    assert [padded_channels(c) for c in (1, 16, 24, 48, 100, 112, 161, 192, 200, 768)] == [
        16, 16, 32, 48, 128, 128, 192, 192, 208, 768,
    ]  # fmt: skip
