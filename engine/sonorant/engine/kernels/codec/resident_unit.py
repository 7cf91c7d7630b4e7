"""The residual unit of 96 channels of the codec decoder in CUDA C++, for Hopper GPUs and float16: what `residual_unit`
of convolution.py does, with all weights in shared memory (resident_unit.cu)."""

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from sonorant.engine.kernels.codec.codec_layers import PRODUCT_CHANNELS, Convolution, Snake
from sonorant.engine.kernels.codec.packed_convolution import eights_of_a_thread, pack_parameters
from sonorant.engine.kernels.cuda_code import CudaKernel, load, num_multiprocessors, offers

CHANNELS, TAPS = 96, 7
PIECE = 8  # channels that lie next to each other
TILE = 128  # positions
TEAMS = 2
TILES = 8  # of a block: to fetch the weights takes as long as a tile, and more keep the talker waiting
THREADS = 384
BARRIER_BYTES = 40


@dataclass(frozen=True, slots=True)
class ResidentUnit:
    dilation: int
    has_taps: bool
    image: Tensor  # of the shared memory: weights and parameters

    @classmethod
    def of(
        cls,
        convolutions: tuple[Convolution, Convolution],
        activations: tuple[Snake, Snake],
        taps: Tensor | None = None,
    ) -> "ResidentUnit | None":
        """Pack the weights. Returns None where the kernel cannot run, or does not know the shape."""
        first, second = convolutions
        matrix = first.matrix
        is_known = matrix.shape == (TAPS * CHANNELS, CHANNELS) and matrix.dtype == torch.float16
        needed = shared_bytes(first.dilation, taps is not None)
        if not is_known or not offers(matrix, shared_bytes=needed, warpgroups=True):
            return None
        columns = eights_of_a_thread(CHANNELS).to(matrix.device)
        matrices = [matrix[:, columns], second.matrix[columns][:, columns]]
        if taps is not None:
            matrices.append(taps[columns])
        parameters = [pack_parameters(c.bias, a) for c, a in zip(convolutions, activations, strict=True)]
        parts = [*map(_pieces, matrices), *parameters]
        return cls(first.dilation, taps is not None, torch.cat([part.view(torch.uint8) for part in parts]))

    def suits(self, x: Tensor) -> bool:
        """Whether no tile of x [rows, kept + n, channels] has positions of two rows."""
        return (x.shape[1] - self._num_kept) % TILE == 0

    def run(self, x: Tensor, *, residual: Tensor, plain: Tensor | None, activated: Tensor) -> None:
        """Do what `sonorant.engine.kernels.codec.convolution.residual_unit` does."""
        num_new = x.shape[1] - self._num_kept
        num_tiles = x.shape[0] * num_new // TILE
        tiles_of_block = max(1, min(TILES, num_tiles // num_multiprocessors(x.device)))
        kernel = _kernel(self.dilation, plain is not None, self.has_taps, x.device)
        kernel.of_blocks(-(-num_tiles // tiles_of_block)).launch(
            x, self.image, residual, x if plain is None else plain, activated, num_tiles, tiles_of_block, num_new,
            x.shape[1], 0 if plain is None else plain.shape[1], activated.shape[1],
        )  # fmt: skip

    @property
    def _num_kept(self) -> int:
        return (TAPS - 1) * self.dilation


def _pieces(matrix: Tensor) -> Tensor:
    """[inputs, columns] by 8 inputs, column, input."""
    return matrix.view(-1, PIECE, matrix.shape[1]).transpose(1, 2).flatten()


@cache
def _kernel(dilation: int, has_plain: bool, has_taps: bool, device: torch.device) -> CudaKernel:
    macros = macros_of(dilation, has_plain=has_plain, has_taps=has_taps)
    return load(
        "codec/resident_unit.cu", macros, device, threads=THREADS, shared_bytes=shared_bytes(dilation, has_taps)
    )


def macros_of(dilation: int, *, has_plain: bool, has_taps: bool) -> dict[str, int]:
    return {"DILATION": dilation, "PLAIN": int(has_plain), "PRODUCTS": int(has_taps)}


def shared_bytes(dilation: int, has_taps: bool) -> int:
    """As resident_unit.cu lays it out: weights and parameters, what each team sees of the inputs, barriers."""
    weights = (TAPS + 1) * CHANNELS * CHANNELS + (CHANNELS * PRODUCT_CHANNELS if has_taps else 0)
    places = (TILE + (TAPS - 1) * dilation + 6) // 8 * 8 + 1
    return weights * 2 + 6 * CHANNELS * 4 + TEAMS * places * CHANNELS * 2 + BARRIER_BYTES
