"""Matrices and tables of the talker in few bits, for `weights = "int8"` and `weights = "int4"` on the CPU.

Such a matrix has its weights as whole numbers, and a scale for each group of them, in tiles of a few outputs:
products.h says in which order. A table of codes has eight bits in either case, and a scale for each row. The C
functions compute with both as they are (`sonorant.engine.cpu`); `RoundedLinear` and `RoundedEmbedding` are the plain
equivalents.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.model.talker import Talker
from sonorant.engine.model.weights import Embedding

TILE = 16  # outputs; as in products.h, like the next two
SCALE = torch.bfloat16
MOST = 127  # the largest number of eight bits
ROW_SCALE = torch.float32  # of a table's rows, as in frame.c
TINY = 1e-30  # in place of the largest number of a row that has none


@dataclass(frozen=True, slots=True)
class Rounding:
    """How matrices are rounded; as in products.h."""

    name: str
    bits: int
    group: int  # weights that share a scale
    conversion: str  # named anew whenever `use_rounded` makes other tensors of a checkpoint

    def tile_bytes(self, num_in: int) -> int:
        return TILE * (num_in * self.bits // 8 + num_in // self.group * SCALE.itemsize)

    def pack(self, weight: Tensor) -> Tensor:
        """Round a matrix [out, in]: int8 [out / TILE, tile_bytes(in)]. `in` must be a multiple of `group`."""
        groups = weight.float().reshape(-1, TILE, weight.shape[1] // self.group, self.group)
        if self.bits == 8:
            steps = groups.abs().amax(3) / MOST
        else:  # the largest number is -8, as there is no 8
            steps = groups.gather(3, groups.abs().argmax(3, keepdim=True))[..., 0] / -8
        scales = steps.to(SCALE).float()
        shares = groups / torch.where(scales == 0, 1, scales)[..., None]
        numbers = shares.round_().clamp_(-(1 << self.bits - 1), (1 << self.bits - 1) - 1).to(torch.int8)
        pairs = numbers.reshape(*numbers.shape[:3], -1, 2).permute(0, 2, 3, 1, 4)  # [tiles, groups, pairs, TILE, 2]
        if self.bits == 4:
            low, high = (pairs + 8).view(torch.uint8).reshape(*pairs.shape[:2], -1, 2, TILE, 2).unbind(3)
            pairs = (low | high << 4).view(torch.int8)
        scale_bytes = scales.to(SCALE).transpose(1, 2).contiguous().view(torch.int8)
        return torch.cat([pairs.flatten(2), scale_bytes], 2).flatten(1)

    def unpack(self, packed: Tensor, num_in: int) -> Tensor:
        """Return the matrix [out, in] in float32 that such tiles stand for."""
        groups = packed.reshape(len(packed), num_in // self.group, -1)
        num_bytes = TILE * self.group * self.bits // 8
        pairs, scales = groups[..., :num_bytes].reshape(*groups.shape[:2], -1, TILE, 2), groups[..., num_bytes:]
        if self.bits == 4:
            both = pairs.view(torch.uint8)
            pairs = torch.stack([both & 15, both >> 4], 3).flatten(2, 3).view(torch.int8) - 8
        numbers = pairs.permute(0, 3, 1, 2, 4).flatten(3)  # [tiles, TILE, groups, inputs]
        factors = scales.contiguous().view(SCALE).float().transpose(1, 2)
        return (numbers.float() * factors[..., None]).flatten(2).flatten(0, 1)


INT8 = Rounding("int8", 8, 128, "int8-4")
INT4 = Rounding("int4", 4, 32, "int4-4")
ROUNDINGS = {each.name: each for each in (INT8, INT4)}


def fits_rounded(checkpoint: Checkpoint) -> bool:
    """Whether all rows of the talker's and the code predictor's matrices are whole groups."""
    sizes = [checkpoint.talker.text_hidden_size] + [
        size
        for stack in (checkpoint.talker.stack, checkpoint.code_predictor.stack)
        for size in (stack.hidden_size, stack.intermediate_size, stack.num_heads * stack.head_dim)
    ]
    return all(not size % each.group for size in sizes for each in ROUNDINGS.values())


class RoundedLinear(nn.Module):
    def __init__(self, rounding: Rounding, num_in: int, num_out: int, bias: nn.Parameter | None) -> None:
        super().__init__()
        self.rounding, self.num_in = rounding, num_in
        empty = torch.empty(num_out // TILE, rounding.tile_bytes(num_in), dtype=torch.int8, device="meta")
        self.weight = nn.Parameter(empty, requires_grad=False)
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.rounding.unpack(self.weight, self.num_in).to(x.dtype), self.bias)


class RoundedEmbedding(nn.Module):
    """Each row is whole numbers of eight bits, and then the bytes of its scale."""

    def __init__(self, num_rows: int, size: int) -> None:
        super().__init__()
        self.size = size
        empty = torch.empty(num_rows, size + ROW_SCALE.itemsize, dtype=torch.int8, device="meta")
        self.weight = nn.Parameter(empty, requires_grad=False)

    @staticmethod
    def pack(table: Tensor) -> Tensor:
        rows = table.float()
        scales = rows.abs().amax(1, keepdim=True).clamp_min(TINY) / MOST
        return torch.cat([(rows / scales).round_().to(torch.int8), scales.to(ROW_SCALE).view(torch.int8)], 1)

    def forward(self, ids: Tensor) -> Tensor:
        rows = self.weight[ids]
        scaled: Tensor = rows[..., : self.size].float() * rows[..., self.size :].contiguous().view(ROW_SCALE)
        return scaled


def use_rounded(talker: Talker, rounding: Rounding) -> None:
    """Round what a frame reads, in a talker on the CPU whose projections are joined: all matrices, those that text
    passes to eight bits, and the tables of codes. The rest becomes float32, except for the table of text, of which few
    rows are read; they do. On the meta device only shapes change."""
    for parent in list(talker.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                setattr(parent, name, _rounded(child, INT8 if parent is talker.text_projection else rounding))
            elif isinstance(child, Embedding) and child is not talker.model.text_embedding:
                setattr(parent, name, _rounded_table(child))
    talker.model.text_embedding.given = torch.float32
    for name, parameter in talker.named_parameters():
        if parameter.dtype != torch.int8 and name != "model.text_embedding.weight":
            parameter.data = parameter.data.float()


def _rounded(linear: nn.Linear, rounding: Rounding) -> RoundedLinear:
    rounded = RoundedLinear(rounding, linear.in_features, linear.out_features, linear.bias)
    if not linear.weight.is_meta:
        rounded.weight = nn.Parameter(rounding.pack(linear.weight), requires_grad=False)
    return rounded


def _rounded_table(table: Embedding) -> RoundedEmbedding:
    rounded = RoundedEmbedding(*table.weight.shape)
    if not table.weight.is_meta:
        rounded.weight = nn.Parameter(RoundedEmbedding.pack(table.weight), requires_grad=False)
    return rounded
