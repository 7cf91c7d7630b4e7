"""Matrices of the talker in eight bits, for `weights = "int8"` on the CPU.

A row of such a matrix has its weights as whole numbers up to 127, and behind them a float32 scale for each GROUP of
them. The C functions multiply with the rows as they are (`sonorant.engine.cpu`); `Int8Linear` is the plain equivalent.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.model.talker import Talker

GROUP = 128  # as in products.h
SCALE_BYTES = 4
LARGEST = 127


def fits_int8(checkpoint: Checkpoint) -> bool:
    """Whether all rows of the talker's and the code predictor's matrices are whole groups."""
    sizes = [
        size
        for stack in (checkpoint.talker.stack, checkpoint.code_predictor.stack)
        for size in (stack.hidden_size, stack.intermediate_size, stack.num_heads * stack.head_dim)
    ]
    return all(not size % GROUP for size in sizes)


def to_int8(weight: Tensor) -> Tensor:
    """Round a matrix [out, in]: int8 [out, in + 4 * in / GROUP]. `in` must be a multiple of GROUP."""
    groups = weight.float().reshape(len(weight), -1, GROUP)
    scales = groups.abs().amax(2) / LARGEST
    numbers = (groups / scales.clamp(min=torch.finfo(torch.float32).tiny)[..., None]).round_().to(torch.int8)
    return torch.cat([numbers.flatten(1), scales.view(torch.int8)], 1)


def from_int8(packed: Tensor) -> Tensor:
    """Return the matrix [out, in] in float32 that such rows stand for."""
    num_in = packed.shape[1] * GROUP // (GROUP + SCALE_BYTES)
    numbers, scales = packed[:, :num_in], packed[:, num_in:].contiguous().view(torch.float32)
    return (numbers.reshape(len(packed), -1, GROUP).float() * scales[..., None]).flatten(1)


class Int8Linear(nn.Module):
    def __init__(self, num_in: int, num_out: int, bias: nn.Parameter | None) -> None:
        super().__init__()
        empty = torch.empty(num_out, num_in + num_in // GROUP * SCALE_BYTES, dtype=torch.int8, device="meta")
        self.weight = nn.Parameter(empty, requires_grad=False)
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, from_int8(self.weight).to(x.dtype), self.bias)


def use_int8(talker: Talker) -> None:
    """Round what a frame reads, in a talker on the CPU whose projections are joined: all matrices but those that text
    passes. The rest becomes float32, except for the table of text. On the meta device only the shapes change."""
    for parent in list(talker.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear) and parent is not talker.text_projection:
                setattr(parent, name, _rounded(child))
    for name, parameter in talker.named_parameters():
        if parameter.dtype != torch.int8 and name != "model.text_embedding.weight":
            parameter.data = parameter.data.float()


def _rounded(linear: nn.Linear) -> Int8Linear:
    rounded = Int8Linear(linear.in_features, linear.out_features, linear.bias)
    if not linear.weight.is_meta:
        rounded.weight = nn.Parameter(to_int8(linear.weight), requires_grad=False)
    return rounded
