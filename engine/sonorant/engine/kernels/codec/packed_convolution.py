"""Convolutions and residual units of the codec decoder in CUDA C++, for Hopper GPUs and float16: what convolution.py
does, with matrix instructions that read all taps' positions from one copy in shared memory (packed_convolution.cu).

Weights and the parameters of activations are packed once, in the order in which the kernel reads them.
"""

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from sonorant.engine.kernels.codec.codec_layers import Convolution, Snake
from sonorant.engine.kernels.cuda_code import CudaKernel, load, num_multiprocessors, offers

PIECE = 8  # channels that lie next to each other
WINDOW_CHANNELS = 64  # that are fetched at once
BLOCK_OUTS = (192, 128, 96)  # outputs that a block may do
TILE, UNIT_TILE = 256, 192  # positions that a block does at once
UNIT_CHANNELS = 192
MOST_KEPT = 54  # positions for which there is room
UNIT_TILES = 2  # of a block: more take long enough to keep the talker waiting
SHARED_BYTES = 227 * 1024
THREADS, UNIT_THREADS = 384, 512

# A last round of blocks that fills less of the GPU than this takes too long; small tiles are faster then.
LEAST_FULL = 0.7


@dataclass(frozen=True, slots=True)
class PackedConvolution:
    """A convolution of two or more taps with its activation."""

    convolution: Convolution
    weights: Tensor
    parameters: Tensor

    @classmethod
    def of(cls, c: Convolution, activation: Snake) -> "PackedConvolution | None":
        """Pack the weights. Returns None where the kernel cannot run, or does not know the shape."""
        size_in, size_out = c.matrix.shape
        is_known = 0 < c.num_kept <= MOST_KEPT and c.stride == 1
        fits = size_in // c.taps % WINDOW_CHANNELS == 0 and size_out % BLOCK_OUTS[0] == 0
        if not (is_known and fits and _is_usable(c.matrix)):
            return None
        return cls(c, pack_matrix(c.matrix, c.taps), pack_parameters(c.bias, activation))

    def suits(self, x: Tensor) -> bool:
        """Whether there is so much of x [rows, kept + n, channels] that this kernel is the faster one."""
        num_tiles, _ = self._tiles(x)
        return _fill_gpu(num_tiles, x)

    def run(self, x: Tensor, *, activated: Tensor) -> None:
        """Write the activated convolution of x, as `sonorant.engine.kernels.codec.convolution.convolve` does."""
        c = self.convolution
        num_tiles, block_out = self._tiles(x)
        shape = (x.shape[2], c.matrix.shape[1], c.taps, c.dilation)
        _kernel(shape, block_out, False, False, x.device).of_blocks(num_tiles).launch(
            x, self.weights, self.parameters, x, x, activated, x.shape[0] * x.shape[1], num_tiles, 1,
            x.shape[1] - c.num_kept, x.shape[1], 0, activated.shape[1],
        )  # fmt: skip

    def _tiles(self, x: Tensor) -> tuple[int, int]:
        """Return how many tiles there are, and their outputs: as few as possible in as few rounds as possible."""
        num_along, size_out = -(-x.shape[0] * x.shape[1] // TILE), self.convolution.matrix.shape[1]
        num_at_once = num_multiprocessors(x.device)
        fitting = [n for n in BLOCK_OUTS if size_out % n == 0]
        block_out = min(fitting, key=lambda n: _rounded_up(num_along * size_out // n, num_at_once) * n)
        return num_along * size_out // block_out, block_out


@dataclass(frozen=True, slots=True)
class PackedUnit:
    """A residual unit of 192 channels."""

    first: Convolution
    weights: Tensor
    parameters: Tensor

    @classmethod
    def of(cls, convolutions: tuple[Convolution, Convolution], activations: tuple[Snake, Snake]) -> "PackedUnit | None":
        """Pack the weights. Returns None where the kernel cannot run, or does not know the shape."""
        first, second = convolutions
        is_known = first.matrix.shape == (first.taps * UNIT_CHANNELS, UNIT_CHANNELS) and 0 < first.num_kept <= MOST_KEPT
        if not (is_known and _is_usable(first.matrix)):
            return None
        columns = eights_of_a_thread(UNIT_CHANNELS).to(first.matrix.device)
        weights = [pack_matrix(first.matrix, first.taps), pack_matrix(second.matrix[columns], 1)]
        parameters = [pack_parameters(c.bias, a) for c, a in zip(convolutions, activations, strict=True)]
        return cls(first, torch.cat(weights), torch.cat(parameters))

    def suits(self, x: Tensor) -> bool:
        """Whether there is so much of x [rows, kept + n, channels] that this kernel is the faster one."""
        return _fill_gpu(self._num_tiles(x), x)

    def run(self, x: Tensor, *, residual: Tensor, plain: Tensor | None, activated: Tensor) -> None:
        """Do what `sonorant.engine.kernels.codec.convolution.residual_unit` does."""
        c = self.first
        num_tiles = self._num_tiles(x)
        tiles_of_block = UNIT_TILES if num_tiles > num_multiprocessors(x.device) else 1
        shape = (UNIT_CHANNELS, UNIT_CHANNELS, c.taps, c.dilation)
        kernel = _kernel(shape, UNIT_CHANNELS, True, plain is not None, x.device)
        kernel.of_blocks(-(-num_tiles // tiles_of_block)).launch(
            x, self.weights, self.parameters, residual, x if plain is None else plain, activated,
            x.shape[0] * x.shape[1], num_tiles, tiles_of_block, x.shape[1] - c.num_kept, x.shape[1],
            0 if plain is None else plain.shape[1], activated.shape[1],
        )  # fmt: skip

    def _num_tiles(self, x: Tensor) -> int:
        return -(-x.shape[0] * x.shape[1] // UNIT_TILE)


def eights_of_a_thread(num_columns: int) -> Tensor:
    """Return which output each column of packed weights has.

    A thread has columns 8 * n + 2 * t and the one after it, for its t of 0 to 3. With four of these pairs exchanged, it
    has eight outputs next to each other.
    """
    pairs = torch.arange(num_columns).view(-1, 4, 4, 2)  # [32 outputs each, threads, pairs of a thread, 2]
    return pairs.transpose(1, 2).flatten()


def pack_matrix(matrix: Tensor, taps: int) -> Tensor:
    """Pack [taps * channels in, outputs]: by 64 channels, tap, 8 channels, column, channel."""
    columns = matrix[:, eights_of_a_thread(matrix.shape[1]).to(matrix.device)]
    window = min(WINDOW_CHANNELS, len(matrix) // taps)
    return columns.view(taps, -1, window // PIECE, PIECE, matrix.shape[1]).permute(1, 0, 2, 4, 3).flatten()


def pack_parameters(bias: Tensor, activation: Snake) -> Tensor:
    """Bias, frequency and magnitude of each column: [3 * columns], float32."""
    columns = eights_of_a_thread(len(bias)).to(bias.device)
    return torch.cat([values[columns] for values in (bias, activation.frequency, activation.magnitude)])


def _is_usable(matrix: Tensor) -> bool:
    return matrix.dtype == torch.float16 and offers(matrix, shared_bytes=SHARED_BYTES, warpgroups=True)


def _fill_gpu(num_tiles: int, x: Tensor) -> bool:
    return num_tiles >= LEAST_FULL * _rounded_up(num_tiles, num_multiprocessors(x.device))


def _rounded_up(number: int, step: int) -> int:
    return -(-number // step) * step


@cache
def _kernel(
    shape: tuple[int, int, int, int], block_out: int, is_unit: bool, has_plain: bool, device: torch.device
) -> CudaKernel:
    threads = UNIT_THREADS if is_unit else THREADS
    macros = macros_of(*shape, block_out, is_unit=is_unit, has_plain=has_plain)
    return load("codec/packed_convolution.cu", macros, device, threads=threads, shared_bytes=SHARED_BYTES)


def macros_of(
    channels_in: int,
    size_out: int,
    taps: int,
    dilation: int,
    block_out: int,
    *,
    is_unit: bool,
    has_plain: bool,
) -> dict[str, int]:
    return {
        "CHANNELS_IN": channels_in,
        "SIZE_OUT": size_out,
        "TAPS": taps,
        "DILATION": dilation,
        "BLOCK_OUT": block_out,
        "UNIT": int(is_unit),
        "PLAIN": int(has_plain),
    }
