"""Rounds the weights of the talker's layers and of the code predictor's to float8, for `weights = "fp8"`.

They keep their dtype, so that all kinds of steps compute with the same numbers. On CUDA their bytes are kept as well
(`sonorant.engine.model.fused`).
"""

from collections.abc import Iterator

from torch import nn

from sonorant.engine.kernels.fp8 import round_in_place
from sonorant.engine.model.talker import Talker

SCALE_BYTES = 4


def round_weights(talker: Talker) -> None:
    """Round all matrices of the layers in place. Embeddings, heads, norms and projections of embeddings stay."""
    for linear in _matrices(talker):
        round_in_place(linear.weight)


def fp8_bytes(talker: Talker) -> int:
    """Return how many bytes the rounded matrices take as float8, with their scales."""
    return sum(linear.weight.numel() + linear.out_features * SCALE_BYTES for linear in _matrices(talker))


def _matrices(talker: Talker) -> Iterator[nn.Linear]:
    for stack in (talker.model.layers, talker.code_predictor.model.layers):
        yield from (each for each in stack.modules() if isinstance(each, nn.Linear))
