"""The decoder stack and the code predictor out of few kernels: what CUDA runs in the place of the plain modules.

Same weights, same arithmetic up to rounding. Every call has a fixed sequence of kernels of fixed shapes, nothing waits
for the host, so that a call can be captured in a CUDA graph.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.kernels.attention import HeadNorm, Places, paged_attention
from engine.kernels.linear import linear
from engine.kernels.norm import add_rms_norm
from engine.kernels.swiglu import swiglu
from engine.model.code_predictor import ChooseCode, CodePredictor
from engine.model.layers import DecoderLayer, JoinedAttention, RMSNorm, RotaryTable


@dataclass(frozen=True, slots=True)
class _Layer:
    before_attention: RMSNorm
    qkv: nn.Linear
    head_norm: HeadNorm
    out: Tensor
    before_mlp: RMSNorm
    gate_up: Tensor
    down: Tensor


class FusedStack:
    """Layers and final norm. The layers must be joined; they go on working, with the same memory."""

    def __init__(self, layers: nn.ModuleList, norm: RMSNorm, rotary: RotaryTable) -> None:
        self._layers = [_fused(layer, rotary) for layer in layers]
        self._norm = norm

    def __call__(self, x: Tensor, cache: Tensor, places: Places) -> Tensor:
        """x [rows, hidden]; cache [layers, 2, positions of the pool, kv_heads, head_dim]."""
        delta = None
        for layer, (keys, values) in zip(self._layers, cache, strict=True):
            x, normed = add_rms_norm(x, delta, layer.before_attention.weight, layer.before_attention.eps)
            qkv = linear(normed, layer.qkv.weight, layer.qkv.bias)
            attended = paged_attention(qkv, layer.head_norm, keys, values, places)
            x, normed = add_rms_norm(x, linear(attended, layer.out), layer.before_mlp.weight, layer.before_mlp.eps)
            delta = linear(swiglu(linear(normed, layer.gate_up)), layer.down)
        return add_rms_norm(x, delta, self._norm.weight, self._norm.eps)[1]


class FusedPredictor:
    """The remaining codebooks of a frame. Keys and values of a row fill one page, as long as the frame."""

    def __init__(self, predictor: CodePredictor, first_table: nn.Embedding, num_codebooks: int, max_rows: int) -> None:
        weight = first_table.weight
        self._config = predictor.config
        rotary = RotaryTable(predictor.config, num_codebooks, weight.device, torch.float32)
        self._stack = FusedStack(predictor.model.layers, predictor.model.norm, rotary)
        self._projection = predictor.small_to_mtp_projection
        # The projection of an embedding does not depend on the frame, so all are made once.
        tables = [first_table, *predictor.model.codec_embedding][: num_codebooks - 1]
        self._inputs = [self._projection(table.weight) for table in tables]
        self._heads = list(predictor.lm_head.parameters())
        self._num_codebooks = num_codebooks
        self._rows = torch.arange(max_rows, device=weight.device)
        self._rows_twice = self._rows.repeat_interleave(2)
        self._zero_one = torch.arange(2, device=weight.device).repeat(max_rows)
        self._positions = torch.arange(num_codebooks, device=weight.device)[:, None].repeat(1, max_rows)

    def __call__(self, hidden: Tensor, first: Tensor, choose: ChooseCode) -> Tensor:
        """Ids [rows, codebooks] from the talker's state [rows, hidden] and the first code [rows] it gave."""
        num_rows, num_codebooks, c = len(hidden), self._num_codebooks, self._config
        pool = num_rows * num_codebooks
        cache = hidden.new_empty(c.num_layers, 2, pool, c.num_kv_heads, c.head_dim)
        rows = self._rows[:num_rows]
        pages = rows[:, None]
        both = Places(self._rows_twice[: 2 * num_rows], self._zero_one[: 2 * num_rows], pages, num_codebooks, False)
        x = torch.stack([self._projection(hidden), F.embedding(first, self._inputs[0])], 1).flatten(0, 1)
        out = self._stack(x, cache, both)[1::2]
        codes = [first]
        for book in range(1, num_codebooks):
            codes.append(choose(book, linear(out, self._heads[book - 1])))
            if book < num_codebooks - 1:
                places = Places(rows, self._positions[book + 1, :num_rows], pages, num_codebooks, True)
                out = self._stack(F.embedding(codes[-1], self._inputs[book]), cache, places)
        return torch.stack(codes, 1)


def join_rows(parameters: list[Tensor]) -> Tensor:
    """One tensor with all of them one below the other, of which they become views."""
    joined = torch.cat([p.data for p in parameters])
    for parameter, part in zip(parameters, torch.split(joined, [len(p) for p in parameters]), strict=True):
        parameter.data = part
    return joined


def _fused(layer: nn.Module, rotary: RotaryTable) -> _Layer:
    assert isinstance(layer, DecoderLayer)
    attention, mlp = layer.self_attn, layer.mlp
    assert isinstance(attention, JoinedAttention), "the layer is not joined"
    return _Layer(
        before_attention=layer.input_layernorm,
        qkv=attention.qkv_proj,
        head_norm=HeadNorm(
            attention.qk_norm.weight, attention.qk_norm.eps, rotary.cos.flatten(1), rotary.sin.flatten(1)
        ),
        out=attention.o_proj.weight,
        before_mlp=layer.post_attention_layernorm,
        gate_up=join_rows([mlp.gate_proj.weight, mlp.up_proj.weight]),
        down=mlp.down_proj.weight,
    )
