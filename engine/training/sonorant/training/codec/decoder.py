"""The codec decoder over whole crops, with gradients: uses the serving modules' weights without their streaming state.

Every layer is causal and a stream begins with zeros, so the results are those of the serving decoder in a fresh state.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sonorant.engine.checkpoint.config import TransformerConfig
from sonorant.engine.model.codec.code2wav import (
    SNAKE_EPS,
    CausalConv,
    CausalTransposedConv,
    Code2Wav,
    ConvNeXtBlock,
    ResidualUnit,
    SnakeBeta,
)
from sonorant.engine.model.codec.code2wav_transformer import TransformerLayer, WindowTransformer
from sonorant.engine.model.layers import RotaryTable, Rotation


def decode_latents(decoder: Code2Wav, x: Tensor) -> tuple[Tensor, Tensor]:
    """Codebook vectors [crops, codebook_dim, frames] -> samples [crops, n], and latents at four times that rate."""
    x = transformer(
        decoder.pre_transformer, decoder.config.stack, causal(decoder.pre_conv, x).transpose(1, 2)
    ).transpose(1, 2)
    for upsampling in decoder.upsample:
        transposed, block = layers_of(upsampling)
        x = convnext(block, transposed_conv(transposed, x))
    latents = x
    first, *blocks, activation, last = layers_of(decoder.decoder)
    x = causal(first, x)
    for upsampling in blocks:
        snaked, transposed, *units = layers_of(upsampling.block)
        x = transposed_conv(transposed, snake(snaked, x))
        for unit in units:
            x = residual_unit(unit, x)
    with torch.autocast(x.device.type, enabled=False):  # rounding in the last layer would be heard as clicks and hiss
        samples = causal(last, snake(activation, x.float()))
    return samples[:, 0], latents


def layers_of(module: nn.Module) -> list[Any]:
    """The children of a module list, typed as Any because the type checker only knows that they are modules."""
    return list(module.children())


def causal(layer: CausalConv, x: Tensor) -> Tensor:
    conv = layer.conv
    out: Tensor = conv(F.pad(x, ((conv.kernel_size[0] - 1) * conv.dilation[0], 0)))
    return out


def transposed_conv(layer: CausalTransposedConv, x: Tensor) -> Tensor:
    out: Tensor = layer.conv(x)
    return out[..., : x.shape[-1] * layer.stride]


def snake(layer: SnakeBeta, x: Tensor) -> Tensor:
    frequency, magnitude = layer.alpha.exp()[:, None], 1 / (layer.beta.exp()[:, None] + SNAKE_EPS)
    return (x + magnitude * torch.sin(x * frequency) ** 2).to(x.dtype)


def residual_unit(unit: ResidualUnit, x: Tensor) -> Tensor:
    return x + causal(unit.conv2, snake(unit.act2, causal(unit.conv1, snake(unit.act1, x))))


def convnext(block: ConvNeXtBlock, x: Tensor) -> Tensor:
    y = block.norm(causal(block.dwconv, x).transpose(1, 2))
    y = block.gamma * block.pwconv2(F.gelu(block.pwconv1(y)))
    out: Tensor = x + y.transpose(1, 2)
    return out


def transformer(module: WindowTransformer, stack: TransformerConfig, x: Tensor) -> Tensor:
    """x [crops, frames, latent] -> [crops, frames, latent]."""
    frames = torch.arange(x.shape[1], device=x.device)
    age = frames[:, None] - frames
    mask = (age >= 0) & (age < module.window)
    table = RotaryTable(stack, x.shape[1], x.device, torch.float32).at(frames)
    rotation = Rotation(table.cos.squeeze(1), table.sin.squeeze(1))
    x = module.input_proj(x)
    for layer in layers_of(module.layers):
        x = _layer(layer, x, rotation, mask)
    out: Tensor = module.output_proj(module.norm(x))
    return out


def _layer(layer: TransformerLayer, x: Tensor, rotation: Rotation, mask: Tensor) -> Tensor:
    attention, normed = layer.self_attn, layer.input_layernorm(x)

    def heads(projection: nn.Module) -> Tensor:
        projected: Tensor = projection(normed)
        return projected.view(*x.shape[:2], -1, attention.head_dim).transpose(1, 2)

    q, k = rotation.apply(heads(attention.q_proj)), rotation.apply(heads(attention.k_proj))
    v = heads(attention.v_proj)
    attended = F.scaled_dot_product_attention(q.to(v.dtype), k.to(v.dtype), v, attn_mask=mask)
    x = x + layer.self_attn_layer_scale(attention.o_proj(attended.transpose(1, 2).flatten(2)))
    out: Tensor = x + layer.mlp_layer_scale(layer.mlp(layer.post_attention_layernorm(x)))
    return out
