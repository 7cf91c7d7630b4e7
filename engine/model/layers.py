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
    """Over the last dimension; the weight may have further ones in front."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        # The statistics are float32, the product with the weight is not: F.rms_norm would round once less in bfloat16.
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


@dataclass(frozen=True, slots=True)
class Rotation:
    """Half-split rotary embedding of one batch of rows, or of all rows alike."""

    cos: Tensor  # [rows or 1, 1, head_dim]
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
        self._cos = torch.cat([angles.cos(), angles.cos()], -1).to(dtype).unsqueeze(1)
        self._sin = torch.cat([-angles.sin(), angles.sin()], -1).to(dtype).unsqueeze(1)

    def at(self, positions: Tensor) -> Rotation:  # [rows]
        return Rotation(self._cos.index_select(0, positions), self._sin.index_select(0, positions))

    def at_each(self, position: int) -> Rotation:
        """Every row at the same position."""
        return Rotation(self._cos[position : position + 1], self._sin[position : position + 1])


class MLP(nn.Module):
    def __init__(self, c: TransformerConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.up_proj = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.down_proj = nn.Linear(c.intermediate_size, c.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        down: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return down


class Attention(nn.Module):
    """Loaded with the checkpoint's tensors, then `join`ed: one product gives queries, keys and values."""

    def __init__(self, c: TransformerConfig) -> None:
        super().__init__()
        self.q_proj = nn.Linear(c.hidden_size, c.num_heads * c.head_dim, bias=c.attention_bias)
        self.k_proj = nn.Linear(c.hidden_size, c.num_kv_heads * c.head_dim, bias=c.attention_bias)
        self.v_proj = nn.Linear(c.hidden_size, c.num_kv_heads * c.head_dim, bias=c.attention_bias)
        self.o_proj = nn.Linear(c.num_heads * c.head_dim, c.hidden_size, bias=c.attention_bias)
        self.q_norm = RMSNorm(c.head_dim, c.rms_norm_eps)
        self.k_norm = RMSNorm(c.head_dim, c.rms_norm_eps)
        self.config = c

    def join(self) -> None:
        parts = [self.q_proj, self.k_proj, self.v_proj]
        self.qkv_proj = parts[0]
        self.qkv_proj.weight = _joined([part.weight for part in parts])
        if self.config.attention_bias:
            self.qkv_proj.bias = _joined([part.bias for part in parts])
        counts = (self.config.num_heads, self.config.num_kv_heads)
        norms = (self.q_norm, self.k_norm)
        self.qk_norm = self.q_norm
        self.qk_norm.weight = _joined([n.weight.expand(count, -1) for n, count in zip(norms, counts, strict=True)])
        del self.q_proj, self.k_proj, self.v_proj, self.q_norm, self.k_norm

    def forward(self, x: Tensor, rotation: Rotation, attend: Attend) -> Tensor:
        c = self.config
        heads = self.qkv_proj(x).view(x.shape[0], -1, c.head_dim)
        num_rotated = c.num_heads + c.num_kv_heads
        rotated = rotation.apply(self.qk_norm(heads[:, :num_rotated]))
        attended = attend(rotated[:, : c.num_heads], rotated[:, c.num_heads :], heads[:, num_rotated:])
        out: Tensor = self.o_proj(attended.flatten(1))
        return out


def store_transposed(module: nn.Module) -> None:
    """Lay the matrices of every Linear out by columns, which the CPU's product of few rows reads a quarter faster."""
    for linear in module.modules():
        if isinstance(linear, nn.Linear):
            linear.weight.data = linear.weight.t().contiguous().t()


def _joined(parts: list[Tensor]) -> nn.Parameter:
    return nn.Parameter(torch.cat(parts), requires_grad=False)


class DecoderLayer(nn.Module):
    def __init__(self, c: TransformerConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.self_attn = Attention(c)
        self.post_attention_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.mlp = MLP(c)

    def forward(self, x: Tensor, rotation: Rotation, attend: Attend) -> Tensor:  # [rows, hidden]
        x = x + self.self_attn(self.input_layernorm(x), rotation, attend)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out
