"""The codec decoder's transformer in a few fused kernels, which read keys and values in their slots without a copy."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sonorant.engine.kernels.codec.window_attention import rotations, window_attention
from sonorant.engine.kernels.gemm.gemv import Norm
from sonorant.engine.kernels.gemm.linear import linear
from sonorant.engine.kernels.norm import add_rms_norm
from sonorant.engine.model.codec.code2wav_state import CodecState
from sonorant.engine.model.codec.code2wav_transformer import TransformerLayer, WindowTransformer


@dataclass(frozen=True, slots=True)
class _Layer:
    plain: TransformerLayer
    gate_up: Tensor  # [2 * intermediate, hidden]


class FusedWindowTransformer:
    """Built from a prepared `WindowTransformer`, for a state whose keys and values are rings."""

    def __init__(self, plain: WindowTransformer) -> None:
        self._plain = plain
        assert plain.norm.eps is not None
        self._eps = plain.norm.eps  # the same in every norm
        self._layers = []
        for layer in plain.layers:
            assert isinstance(layer, TransformerLayer)
            self._layers.append(_Layer(layer, torch.cat((layer.mlp.gate_proj.weight, layer.mlp.up_proj.weight))))
        exponents = torch.arange(0, plain.head_dim, 2, device=plain.norm.weight.device).float() / plain.head_dim
        self._frequencies = 1.0 / plain.rope_theta**exponents

    def __call__(self, x: Tensor, state: CodecState, slots: Tensor) -> Tensor:
        """x [rows, new, latent] -> [rows, new, latent]; updates the keys and values of the slots."""
        rows = rotations(slots, state.num_frames, x.shape[1], self._frequencies)
        plain = self._plain
        y = linear(x.flatten(0, 1), plain.input_proj.weight, plain.input_proj.bias)
        for i, layer in enumerate(self._layers):
            attention = layer.plain.self_attn
            qkv = linear(y, attention.weight, attention.bias, norm=self._norm(layer.plain.input_layernorm))
            attended = window_attention(qkv, state.keys[:, i], state.values[:, i], rows, attention.num_heads)
            y = linear(attended, attention.o_proj.weight, attention.o_proj.bias, residual=y)
            up = linear(y, layer.gate_up, norm=self._norm(layer.plain.post_attention_layernorm), is_swiglu=True)
            y = linear(up, layer.plain.mlp.down_proj.weight, residual=y)
        _, normed = add_rms_norm(y, None, plain.norm.weight, self._eps)
        out: Tensor = linear(normed, plain.output_proj.weight, plain.output_proj.bias).view(len(x), x.shape[1], -1)
        return out

    def _norm(self, norm: nn.RMSNorm) -> Norm:
        return Norm(norm.weight, self._eps)
