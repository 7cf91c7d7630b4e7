"""The codec decoder's transformer: sliding-window attention over remembered and new frames.

Attribute names are the checkpoint's tensor names (`decoder.pre_transformer.*`). Knows no other part of the decoder.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sonorant.engine.checkpoint.config import CodecDecoderConfig, TransformerConfig
from sonorant.engine.model.codec.code2wav_state import CodecState
from sonorant.engine.model.layers import MLP, Rotation

MASK_ALIGNMENT = 8  # a mask's rows begin at multiples of it in memory; else CUDA's attention copies it in each layer


class WindowAttention(nn.Module):
    """Attention over a sliding window of remembered and new keys."""

    def __init__(self, config: TransformerConfig, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.head_dim = config.head_dim
        self.num_heads, self.num_kv_heads = config.num_heads, config.num_kv_heads
        query_size, kv_size = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, query_size, bias=config.attention_bias)
        self.k_proj = nn.Linear(config.hidden_size, kv_size, bias=config.attention_bias)
        self.v_proj = nn.Linear(config.hidden_size, kv_size, bias=config.attention_bias)
        self.o_proj = nn.Linear(query_size, config.hidden_size, bias=config.attention_bias)

    def join(self) -> None:
        """Join the projections, so that one product gives queries, keys and values."""
        parts = (self.q_proj, self.k_proj, self.v_proj)
        self.weight = torch.cat([part.weight for part in parts])
        self.bias = None if self.q_proj.bias is None else torch.cat([part.bias for part in parts])
        del self.q_proj, self.k_proj, self.v_proj

    def forward(self, x: Tensor, rotation: Rotation, mask: Tensor, state: CodecState) -> Tensor:
        """x [rows, new, hidden] -> [rows, new, hidden]; updates the layer's keys and values in `state`."""
        heads = F.linear(x, self.weight, self.bias).view(*x.shape[:2], -1, self.head_dim).transpose(1, 2)
        num_rotated = self.num_heads + self.num_kv_heads
        rotated = rotation.apply(heads[:, :num_rotated])  # [rows, heads, frames, head_dim]
        keys = _extend(state.keys[:, self.layer], rotated[:, self.num_heads :])
        values = _extend(state.values[:, self.layer], heads[:, num_rotated:])
        y = F.scaled_dot_product_attention(
            rotated[:, : self.num_heads],
            keys,
            values,
            attn_mask=mask,
            enable_gqa=self.num_heads != self.num_kv_heads,
        )
        z: Tensor = self.o_proj(y.transpose(1, 2).flatten(2))
        return z


def _extend(kept: Tensor, new: Tensor) -> Tensor:
    extended = torch.cat((kept, new), dim=2)
    kept.copy_(extended[:, :, new.shape[2] :])
    return extended


class LayerScale(nn.Module):
    """A factor per channel. Training applies it; for inference, `TransformerLayer.prepare` folds it into the product
    before it."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.empty(size))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x

    def fold_into(self, linear: nn.Linear) -> None:
        linear.weight.data.mul_(self.scale[:, None])
        if linear.bias is not None:
            linear.bias.data.mul_(self.scale)


class TransformerLayer(nn.Module):
    def __init__(self, config: TransformerConfig, layer: int) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = WindowAttention(config, layer)
        self.self_attn_layer_scale = LayerScale(config.hidden_size)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = MLP(config)
        self.mlp_layer_scale = LayerScale(config.hidden_size)

    def prepare(self) -> None:
        self.self_attn.join()
        self.self_attn_layer_scale.fold_into(self.self_attn.o_proj)
        self.mlp_layer_scale.fold_into(self.mlp.down_proj)
        del self.self_attn_layer_scale, self.mlp_layer_scale

    def forward(self, x: Tensor, rotation: Rotation, mask: Tensor, state: CodecState) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), rotation, mask, state)
        y: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return y


class WindowTransformer(nn.Module):
    def __init__(self, config: CodecDecoderConfig) -> None:
        super().__init__()
        stack = config.stack
        self.window = config.sliding_window
        self.rope_theta = stack.rope_theta
        self.head_dim = stack.head_dim
        self.input_proj = nn.Linear(config.latent_dim, stack.hidden_size)
        self.layers = nn.ModuleList(TransformerLayer(stack, layer) for layer in range(stack.num_layers))
        self.norm = nn.RMSNorm(stack.hidden_size, stack.rms_norm_eps)
        self.output_proj = nn.Linear(stack.hidden_size, config.latent_dim)

    def forward(self, x: Tensor, state: CodecState) -> Tensor:
        """x [rows, new, latent] -> [rows, new, latent]; updates keys and values in `state`, but not `num_frames`."""
        rotation = self._rotation(state.num_frames, x.shape[1], x.dtype)
        mask = self._mask(state.num_frames, x.shape[1], x.dtype)
        x = self.input_proj(x)
        for layer in self.layers:
            x = layer(x, rotation, mask, state)
        y: Tensor = self.output_proj(self.norm(x))
        return y

    def _rotation(self, num_frames: Tensor, num_new: int, dtype: torch.dtype) -> Rotation:
        device = num_frames.device
        positions = num_frames[:, None] + torch.arange(num_new, device=device)  # [rows, new]
        exponents = torch.arange(0, self.head_dim, 2, device=device).float() / self.head_dim
        angles = (positions[..., None] / self.rope_theta**exponents)[:, None]  # [rows, 1, new, head_dim / 2]
        cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
        return Rotation(torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1))

    def _mask(self, num_frames: Tensor, num_new: int, dtype: torch.dtype) -> Tensor:
        """The mask [rows, 1, new, keys]: 0 where a new frame sees a key, else -inf. The window - 1 remembered keys come
        first."""
        num_kept = self.window - 1
        num_keys = num_kept + num_new
        keys = torch.arange(-(-num_keys // MASK_ALIGNMENT) * MASK_ALIGNMENT, device=num_frames.device)
        age = num_kept + torch.arange(num_new, device=num_frames.device)[:, None] - keys  # [new, keys]
        filled = keys >= num_kept - num_frames[:, None]  # [rows, keys]
        seen = ((age >= 0) & (age < self.window))[None, None] & filled[:, None, None]
        mask = torch.zeros(seen.shape, dtype=dtype, device=num_frames.device).masked_fill_(~seen, -torch.inf)
        return mask[..., :num_keys]
