"""Building blocks of the decoder stacks (talker, code predictor): norm, rotary positions, MLP, attention block.

Attribute names mirror the checkpoint's tensor names. Rows are flat, [rows, hidden]: what a row attends to is the
business of the `attend` function that the caller passes in. Source of the arithmetic: QwenLM/Qwen3-TTS
`qwen_tts/core/models/modeling_qwen3_tts.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.checkpoint import TransformerConfig

# (queries [rows, heads, head_dim], keys [rows, kv_heads, head_dim], values likewise) -> [rows, heads, head_dim]
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype == torch.float32:
            return F.rms_norm(x, self.weight.shape, self.weight, self.eps)
        # The statistics are float32, the product with the weight is not: F.rms_norm would round once less.
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


@dataclass(frozen=True, slots=True)
class Rotation:
    """Half-split rotary embedding of one batch of rows."""

    cos: Tensor  # [rows, 1, head_dim]
    sin: Tensor  # likewise, the first half negated: what `rotate_half` would negate instead

    def apply(self, x: Tensor) -> Tensor:  # [rows, heads, head_dim]
        return x * self.cos + x.roll(x.shape[-1] // 2, -1) * self.sin


class RotaryTable:
    """cos and sin of every position, computed in float32 and cast once.

    The talker's multimodal rotation reduces to this one, as its three position rows are always equal.
    """

    def __init__(self, c: TransformerConfig, num_positions: int, device: torch.device, dtype: torch.dtype) -> None:
        exponents = torch.arange(0, c.head_dim, 2, dtype=torch.int64, device=device).float() / c.head_dim
        angles = torch.arange(num_positions, device=device).float()[:, None] * (1.0 / c.rope_theta**exponents)
        self._cos = torch.cat([angles.cos(), angles.cos()], -1).to(dtype)
        self._sin = torch.cat([-angles.sin(), angles.sin()], -1).to(dtype)

    def at(self, positions: Tensor) -> Rotation:  # [rows]
        return Rotation(self._cos[positions].unsqueeze(1), self._sin[positions].unsqueeze(1))


class MLP(nn.Module):
    def __init__(self, hidden_size: int, intermediate_size: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.up_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        down: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return down


class Attention(nn.Module):
    def __init__(self, c: TransformerConfig) -> None:
        super().__init__()
        self.q_proj = nn.Linear(c.hidden_size, c.num_heads * c.head_dim, bias=c.attention_bias)
        self.k_proj = nn.Linear(c.hidden_size, c.num_kv_heads * c.head_dim, bias=c.attention_bias)
        self.v_proj = nn.Linear(c.hidden_size, c.num_kv_heads * c.head_dim, bias=c.attention_bias)
        self.o_proj = nn.Linear(c.num_heads * c.head_dim, c.hidden_size, bias=c.attention_bias)
        self.q_norm = RMSNorm(c.head_dim, c.rms_norm_eps)
        self.k_norm = RMSNorm(c.head_dim, c.rms_norm_eps)
        self.head_dim = c.head_dim

    def forward(self, x: Tensor, rotation: Rotation, attend: Attend) -> Tensor:
        by_head = (x.shape[0], -1, self.head_dim)
        queries = rotation.apply(self.q_norm(self.q_proj(x).view(by_head)))
        keys = rotation.apply(self.k_norm(self.k_proj(x).view(by_head)))
        values = self.v_proj(x).view(by_head)
        out: Tensor = self.o_proj(attend(queries, keys, values).flatten(1))
        return out


class DecoderLayer(nn.Module):
    def __init__(self, c: TransformerConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.self_attn = Attention(c)
        self.post_attention_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.mlp = MLP(c.hidden_size, c.intermediate_size)

    def forward(self, x: Tensor, rotation: Rotation, attend: Attend) -> Tensor:  # [rows, hidden]
        x = x + self.self_attn(self.input_layernorm(x), rotation, attend)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out
