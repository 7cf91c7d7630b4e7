"""Building blocks of the decoder stacks (talker, code predictor): norm, rotary positions, MLP, attention block. The
codec decoder's transformer uses rotation and MLP as well.

Attribute names mirror the checkpoint's tensor names. Rows are flat, [rows, hidden]: the `attend` function that the
caller passes in decides what a row attends to. Source of the arithmetic: QwenLM/Qwen3-TTS
`qwen_tts/core/models/modeling_qwen3_tts.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sonorant.engine.checkpoint.config import TransformerConfig

# (queries [rows, heads, head_dim], keys [rows, kv_heads, head_dim], values likewise) -> [rows, heads, head_dim]
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


class RMSNorm(nn.Module):
    """RMSNorm over the last dimension. The weight may have further dimensions in front, such as one for heads."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        # The statistics are float32, the product with the weight is in the dtype of x. In bfloat16, F.rms_norm would
        # round once less.
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


@dataclass(frozen=True, slots=True)
class Rotation:
    """Half-split rotary embedding, with an angle for each row of a batch or one for all rows.

    The codec decoder has a dimension of frames: x is [rows, heads, frames, head_dim], cos [rows, 1, frames, head_dim].
    """

    cos: Tensor  # [rows or 1, 1, head_dim]
    sin: Tensor  # the same shape; the first half is negated, which saves what `rotate_half` negates

    def apply(self, x: Tensor) -> Tensor:  # [rows, heads, head_dim]
        return x * self.cos + x.roll(x.shape[-1] // 2, -1) * self.sin


class RotaryTable:
    """cos and sin of every position, computed in float32 and cast once.

    The talker's multimodal rotation reduces to this one, as its three position rows are always equal.
    """

    def __init__(self, c: TransformerConfig, num_positions: int, device: torch.device, dtype: torch.dtype) -> None:
        exponents = torch.arange(0, c.head_dim, 2, dtype=torch.int64, device=device).float() / c.head_dim
        angles = torch.arange(num_positions, device=device).float()[:, None] * (1.0 / c.rope_theta**exponents)
        cos, sin = angles.cos(), angles.sin()
        self.cos = torch.cat([cos, cos], -1).to(dtype).unsqueeze(1)
        self.sin = torch.cat([-sin, sin], -1).to(dtype).unsqueeze(1)

    def at(self, positions: Tensor) -> Rotation:  # [rows]
        return Rotation(self.cos.index_select(0, positions), self.sin.index_select(0, positions))

    def at_each(self, position: int) -> Rotation:
        """The rotation for rows that are all at the same position."""
        return Rotation(self.cos[position : position + 1], self.sin[position : position + 1])


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
    """Attention with the checkpoint's tensors: separate projections and norms of queries, keys and values."""

    def __init__(self, c: TransformerConfig) -> None:
        super().__init__()
        self.q_proj = nn.Linear(c.hidden_size, c.num_heads * c.head_dim, bias=c.attention_bias)
        self.k_proj = nn.Linear(c.hidden_size, c.num_kv_heads * c.head_dim, bias=c.attention_bias)
        self.v_proj = nn.Linear(c.hidden_size, c.num_kv_heads * c.head_dim, bias=c.attention_bias)
        self.o_proj = nn.Linear(c.num_heads * c.head_dim, c.hidden_size, bias=c.attention_bias)
        self.q_norm = RMSNorm(c.head_dim, c.rms_norm_eps)
        self.k_norm = RMSNorm(c.head_dim, c.rms_norm_eps)
        self.config = c

    def forward(self, x: Tensor, rotation: Rotation, attend: Attend) -> Tensor:
        by_head = (x.shape[0], -1, self.config.head_dim)
        queries = rotation.apply(self.q_norm(self.q_proj(x).view(by_head)))
        keys = rotation.apply(self.k_norm(self.k_proj(x).view(by_head)))
        out: Tensor = self.o_proj(attend(queries, keys, self.v_proj(x).view(by_head)).flatten(1))
        return out


class JoinedAttention(nn.Module):
    """`Attention` for inference: one product gives queries, keys and values; queries and keys share one norm and one
    rotation."""

    def __init__(self, parts: Attention) -> None:
        super().__init__()
        c = self.config = parts.config
        projections = (parts.q_proj, parts.k_proj, parts.v_proj)
        num_out = sum(p.out_features for p in projections)
        self.qkv_proj = nn.Linear(c.hidden_size, num_out, bias=c.attention_bias, device="meta")
        self.qkv_proj.weight = _joined([p.weight for p in projections])
        if c.attention_bias:
            self.qkv_proj.bias = _joined([p.bias for p in projections])
        self.qk_norm = RMSNorm(c.head_dim, c.rms_norm_eps)
        scales = [parts.q_norm.weight.expand(c.num_heads, -1), parts.k_norm.weight.expand(c.num_kv_heads, -1)]
        self.qk_norm.weight = _joined(scales)
        self.o_proj = parts.o_proj

    def forward(self, x: Tensor, rotation: Rotation, attend: Attend) -> Tensor:
        c = self.config
        heads = self.qkv_proj(x).view(x.shape[0], -1, c.head_dim)
        num_rotated = c.num_heads + c.num_kv_heads
        rotated = rotation.apply(self.qk_norm(heads[:, :num_rotated]))
        attended = attend(rotated[:, : c.num_heads], rotated[:, c.num_heads :], heads[:, num_rotated:])
        out: Tensor = self.o_proj(attended.flatten(1))
        return out


def store_transposed(module: nn.Module) -> None:
    """Store the matrix of every Linear by columns: with few rows, the CPU's product then reads it a quarter faster."""
    for linear in module.modules():
        if isinstance(linear, nn.Linear):
            linear.weight.data = linear.weight.t().contiguous().t()


def _joined(parts: list[Tensor]) -> nn.Parameter:
    if parts[0].is_meta:  # there `cat` imports torch's compiler first, which takes seconds and 150 MB
        rows = sum(len(part) for part in parts)
        return nn.Parameter(parts[0].new_empty(rows, *parts[0].shape[1:]), requires_grad=False)
    return nn.Parameter(torch.cat(parts), requires_grad=False)


class DecoderLayer(nn.Module):
    def __init__(self, c: TransformerConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.self_attn: Attention | JoinedAttention = Attention(c)
        self.post_attention_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.mlp = MLP(c)

    def join(self) -> None:
        """Join the projections of the attention for inference, once the weights are loaded."""
        if isinstance(self.self_attn, Attention):
            self.self_attn = JoinedAttention(self.self_attn)

    def forward(self, x: Tensor, rotation: Rotation, attend: Attend) -> Tensor:  # [rows, hidden]
        x = x + self.self_attn(self.input_layernorm(x), rotation, attend)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out
