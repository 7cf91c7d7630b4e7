"""The projection of text rows to the talker's size, by compiled functions."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from sonorant.engine.cpu.library import at
from sonorant.engine.cpu.model import FORMATS
from sonorant.engine.model.rounded import RoundedLinear


class CompiledProjection(nn.Module):
    def __init__(self, functions: Any, plain: nn.Module) -> None:
        """`plain` is that of a talker with rounded weights."""
        super().__init__()
        self._functions = functions
        self._layers = [each for each in plain.children() if isinstance(each, RoundedLinear)]

    def forward(self, x: Tensor) -> Tensor:
        first, second = self._layers
        return self._product(F.silu(self._product(x, first)), second)

    def _product(self, x: Tensor, linear: RoundedLinear) -> Tensor:
        assert linear.bias is not None
        x, y = x.contiguous(), x.new_empty(len(x), len(linear.bias))
        shape = len(x), linear.num_in, len(linear.bias), FORMATS[linear.rounding.name]
        if self._functions.multiply_rows(at(y), at(x), at(linear.weight), *shape) != 0:
            raise MemoryError("there was not enough memory for rows of text")
        return y.add_(linear.bias)
