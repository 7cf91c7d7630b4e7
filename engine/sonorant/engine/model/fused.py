"""The decoder stack and the code predictor in a few fused kernels: CUDA runs them instead of the plain modules.

They have the same weights and, up to rounding, the same arithmetic. A call is a fixed sequence of kernels of fixed
shapes and never waits for the host, so that it can be captured in a CUDA graph.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from sonorant.engine.kernels.gemm.gemv import Norm
from sonorant.engine.kernels.gemm.linear import linear, linear_before_norm
from sonorant.engine.kernels.gemm.wgmma_gemm import Scaled
from sonorant.engine.kernels.norm import add_rms_norm
from sonorant.engine.kernels.talker.attention import HeadNorm
from sonorant.engine.kernels.talker.frame_attention import frame_attention
from sonorant.engine.model.code_predictor import CodePredictor
from sonorant.engine.model.layers import DecoderLayer, JoinedAttention, RMSNorm, RotaryTable

# (queries, keys and values of the rows, their norm, keys and values of the layer) -> [rows, heads * head_dim]
Attend = Callable[[Tensor, HeadNorm, Tensor, Tensor], Tensor]
# Draws and keeps a code per row: (index of the codebook, logits [rows, codes], table [codes, size] or None) -> the rows
# of the table for these codes
ChooseAndEmbed = Callable[[int, Tensor, Tensor | None], Tensor]


@dataclass(frozen=True, slots=True)
class _Layer:
    before_attention: Norm
    qkv: Tensor  # [size out, size in], as all weights
    qkv_bias: Tensor | None
    head_norm: HeadNorm
    out: Tensor
    before_mlp: Norm
    gate_up: Tensor
    down: Tensor


class FusedStack:
    """A stack of layers, before the final norm. The layers must be joined; they stay usable and share their memory."""

    def __init__(self, layers: nn.ModuleList, final_norm: RMSNorm, rotary: RotaryTable) -> None:
        self._layers = [_fused(layer, rotary) for layer in layers]
        self._final_norm = fused_norm(final_norm)

    def __call__(
        self, x: Tensor, cache: Tensor, attend: Attend, watched: tuple[int, Attend] | None = None
    ) -> tuple[Tensor, Scaled | None]:
        """x [rows, hidden], which may be overwritten; cache [layers, 2, ...], keys and values for `attend`.

        `watched`: the number of a layer, and the function used there instead of `attend`. Returns the rows, and the
        same scaled for the final norm, where that saves time.
        """
        scaled = None
        next_norms = [*(layer.before_attention for layer in self._layers[1:]), self._final_norm]
        for number, (layer, (keys, values), next_norm) in enumerate(zip(self._layers, cache, next_norms, strict=True)):
            attends = watched[1] if watched is not None and watched[0] == number else attend
            qkv = linear(x, layer.qkv, layer.qkv_bias, norm=layer.before_attention, scaled=scaled)
            heard = attends(qkv, layer.head_norm, keys, values)
            x, scaled = linear_before_norm(heard, layer.out, residual=x, next_norm=layer.before_mlp)
            up = linear(x, layer.gate_up, norm=layer.before_mlp, scaled=scaled, is_swiglu=True)
            x, scaled = linear_before_norm(up, layer.down, residual=x, next_norm=next_norm)
        return x, scaled


class FusedPredictor:
    """Predicts the remaining codebooks of a frame."""

    def __init__(self, predictor: CodePredictor, first_table: nn.Embedding, num_codebooks: int) -> None:
        self._config = predictor.config
        rotary = RotaryTable(predictor.config, num_codebooks, first_table.weight.device, torch.float32)
        self._stack = FusedStack(predictor.model.layers, predictor.model.norm, rotary)
        self._norm = fused_norm(predictor.model.norm)
        self._projection = predictor.small_to_mtp_projection
        # The projection of an embedding does not depend on the frame, so all of them are computed once, here.
        tables = [first_table, *predictor.model.codec_embedding][: num_codebooks - 1]
        self.first_inputs, *self._inputs = [self._projection(table.weight) for table in tables]  # each [codes, hidden]
        self._heads = list(predictor.lm_head.parameters())[: num_codebooks - 1]
        self._num_codebooks = num_codebooks

    def __call__(self, hidden: Tensor, first: Tensor, choose: ChooseAndEmbed) -> None:
        """Let `choose` draw all codes but the first, given the talker's state [rows, hidden] and the rows of
        `first_inputs` for the first codes [rows, hidden of the predictor]."""
        num_rows, num_codebooks, c = len(hidden), self._num_codebooks, self._config
        cache = hidden.new_empty(c.num_layers, 2, num_rows, num_codebooks, c.num_kv_heads, c.head_dim)
        both = torch.stack([self._projection(hidden), first], 1)
        x, _ = self._stack(both.flatten(0, 1), cache, partial(frame_attention, position=1))
        x, scaled = x.view(num_rows, 2, -1)[:, 1].contiguous(), None
        for book, (head, table) in enumerate(zip(self._heads, [*self._inputs, None], strict=True), 1):
            x = choose(book, linear(x, head, norm=self._norm, scaled=scaled), table)
            if table is not None:
                x, scaled = self._stack(x, cache, partial(frame_attention, position=book + 1))


def fused_norm(norm: RMSNorm) -> Norm:
    return Norm(norm.weight, norm.eps)


def normed(x: Tensor, norm: Norm) -> Tensor:
    return add_rms_norm(x, None, norm.weight, norm.eps)[1]


def join_rows(parameters: list[Tensor]) -> Tensor:
    """Concatenate parameters along the first dimension; they become views of the result, which is returned."""
    joined = torch.cat([p.data for p in parameters])
    for parameter, part in zip(parameters, torch.split(joined, [len(p) for p in parameters]), strict=True):
        parameter.data = part
    return joined


def _fused(layer: nn.Module, rotary: RotaryTable) -> _Layer:
    assert isinstance(layer, DecoderLayer)
    attention, mlp = layer.self_attn, layer.mlp
    assert isinstance(attention, JoinedAttention), "the layer is not joined"

    return _Layer(
        before_attention=fused_norm(layer.input_layernorm),
        qkv=attention.qkv_proj.weight,
        qkv_bias=attention.qkv_proj.bias,
        head_norm=HeadNorm(
            attention.qk_norm.weight, attention.qk_norm.eps, rotary.cos.flatten(1), rotary.sin.flatten(1)
        ),
        out=attention.o_proj.weight,
        before_mlp=fused_norm(layer.post_attention_layernorm),
        gate_up=join_rows([mlp.gate_proj.weight, mlp.up_proj.weight]),
        down=mlp.down_proj.weight,
    )
