"""Rounds large weights of the talker's layers to float8, for `weights = "fp8"`.

They keep their dtype, so that all kinds of steps compute with the same numbers. On CUDA their bytes are kept as well
(`sonorant.engine.model.fused`).
"""

from collections.abc import Iterator

from torch import nn

from sonorant.engine.kernels.gemm.fp8 import round_in_place
from sonorant.engine.model.talker import Talker

SCALE_BYTES = 4


def round_weights(talker: Talker) -> None:
    """Round the large matrices of the talker's layers in place. In smaller ones, and so in the code predictor, reading
    half the bytes saves no time."""
    for linear in _matrices(talker):
        round_in_place(linear.weight)


def fp8_bytes(talker: Talker) -> int:
    """Return how many bytes the rounded matrices take as float8, with their scales."""
    return sum(linear.weight.numel() + linear.out_features * SCALE_BYTES for linear in _matrices(talker))


def _matrices(talker: Talker) -> Iterator[nn.Linear]:
    """All but the output projections of attention, which are the smallest."""
    for name, module in talker.model.layers.named_modules():
        if isinstance(module, nn.Linear) and not name.endswith("o_proj"):
            yield module
