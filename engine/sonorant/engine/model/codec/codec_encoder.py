"""The codec encoder: a recording in, codec frames out. Needed once per voice, and for in-context cloning only.

It is the encoder half of Mimi, as the official package computes it with transformers 4.57.3: attention covers the whole
past, whatever window the config declares. Attribute names are the checkpoint's tensor names (`encoder.*`). x is
[recordings, channels, positions] between convolutions, [recordings, positions, hidden] between attention layers.
Sources: QwenLM/Qwen3-TTS qwen_tts/core/tokenizer_12hz/modeling_qwen3_tts_tokenizer_v2.py,
huggingface/transformers src/transformers/models/mimi/modeling_mimi.py.
"""

from collections.abc import Iterator
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sonorant.engine.checkpoint.config import CodecConfig, TransformerConfig
from sonorant.engine.model.codec.codec_encoder_config import CodecEncoderConfig, codec_encoder_config
from sonorant.engine.model.layers import RotaryTable, Rotation

USAGE_EPS = 1e-5
LAYER_SCALE = 0.01  # at the start of training


class CodecEncoder(nn.Module):
    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        c = codec_encoder_config(config)
        hidden, stride = c.stack.hidden_size, c.frame_stride
        self.encoder = Convolutions(c)
        self.encoder_transformer = Transformer(c.stack)
        self.downsample = Downsampling(hidden, hidden, 2 * stride, stride, bias=False)
        self.quantizer = SplitQuantizer(c)
        self.config = c
        self.num_codebooks = config.encoder_valid_num_quantizers
        self.frame_samples = config.encode_frame_samples

    def forward(self, samples: Tensor) -> Tensor:
        """samples [num_samples] in -1..1 -> codes [ceil(num_samples / frame_samples), codebooks]."""
        codes = self.encode(samples[None].to(self.downsample.conv.weight.dtype))
        return codes[0, : -(-len(samples) // self.frame_samples)]

    def encode(self, samples: Tensor, length: Tensor | None = None) -> Tensor:
        """samples [recordings, num_samples] -> codes [recordings, frames, codebooks].

        `length` [1]: only so many samples are the recording's; those behind it change none of its frames. Their number,
        too, must then be one of whole frames.
        """
        x, length = self.encoder(samples[:, None], length)
        x = self.encoder_transformer(x.transpose(1, 2)).transpose(1, 2)
        if length is not None:  # what is behind the end is the last vector again, as `downsample` pads
            x = torch.where(_inside(x, length), x, x.index_select(2, length - 1))
        return self.quantizer.encode(self.downsample(x), self.num_codebooks)


class EncoderConv(nn.Module):
    """Convolution that sees only its past; one output for every `stride` inputs, also for an incomplete last group."""

    _pads_with: Literal["constant", "replicate"] = "constant"

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel: int,
        stride: int = 1,
        dilation: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.conv = nn.Conv1d(in_channels, out_channels, kernel, stride, dilation=dilation, bias=bias)
        self.stride = stride
        self._num_past = (kernel - 1) * dilation + 1 - stride

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(F.pad(x, (self._num_past, -x.shape[-1] % self.stride), self._pads_with))
        return y


class Downsampling(EncoderConv):
    _pads_with = "replicate"


class EncoderResidualUnit(nn.Module):
    def __init__(self, c: CodecEncoderConfig, channels: int, dilation: int) -> None:
        super().__init__()
        narrow = channels // c.compress
        self.block = nn.Sequential(
            nn.ELU(),
            EncoderConv(channels, narrow, c.residual_kernel_size, dilation=dilation),
            nn.ELU(),
            EncoderConv(narrow, channels, 1),
        )
        self.shortcut = EncoderConv(channels, channels, 1) if c.conv_shortcut else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.shortcut(x) + self.block(x)
        return y


class Convolutions(nn.Module):
    """[recordings, 1, samples] -> [recordings, hidden, vectors]."""

    def __init__(self, c: CodecEncoderConfig) -> None:
        super().__init__()
        channels = c.num_filters
        layers: list[nn.Module] = [EncoderConv(1, channels, c.kernel_size)]
        for stride in c.strides:
            layers += (
                EncoderResidualUnit(c, channels, c.dilation_growth_rate**n) for n in range(c.num_residual_layers)
            )
            layers += (nn.ELU(), EncoderConv(channels, 2 * channels, 2 * stride, stride))
            channels *= 2
        layers += (nn.ELU(), EncoderConv(channels, c.stack.hidden_size, c.last_kernel_size))
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor, length: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """`length` [1]: of the recording, in samples; returned in vectors. Layers with a stride see zeros behind it."""
        for layer in self.layers:
            if length is not None and isinstance(layer, EncoderConv) and layer.stride > 1:
                x = x * _inside(x, length)
                length = (length + layer.stride - 1) // layer.stride
            x = layer(x)
        return x, length


def _inside(x: Tensor, length: Tensor) -> Tensor:
    """Return which positions of x [recordings, channels, positions] are inside of the length [1]."""
    return torch.arange(x.shape[2], device=x.device) < length


class Transformer(nn.Module):
    """Causal transformer that attends to the whole past."""

    def __init__(self, c: TransformerConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderTransformerLayer(c) for _ in range(c.num_layers))
        self._config = c

    def forward(self, x: Tensor) -> Tensor:
        table = RotaryTable(self._config, x.shape[1], x.device, x.dtype)
        rotation = Rotation(table.cos[:, 0], table.sin[:, 0])  # [positions, head_dim]
        for layer in self.layers:
            x = layer(x, rotation)
        return x


class EncoderTransformerLayer(nn.Module):
    def __init__(self, c: TransformerConfig) -> None:
        super().__init__()
        self.input_layernorm = nn.LayerNorm(c.hidden_size, eps=c.rms_norm_eps)
        self.self_attn = EncoderAttention(c)
        self.self_attn_layer_scale = EncoderLayerScale(c.hidden_size)
        self.post_attention_layernorm = nn.LayerNorm(c.hidden_size, eps=c.rms_norm_eps)
        self.mlp = EncoderMLP(c)
        self.mlp_layer_scale = EncoderLayerScale(c.hidden_size)

    def forward(self, x: Tensor, rotation: Rotation) -> Tensor:
        x = x + self.self_attn_layer_scale(self.self_attn(self.input_layernorm(x), rotation))
        y: Tensor = x + self.mlp_layer_scale(self.mlp(self.post_attention_layernorm(x)))
        return y


class EncoderAttention(nn.Module):
    def __init__(self, c: TransformerConfig) -> None:
        super().__init__()
        self.q_proj = nn.Linear(c.hidden_size, c.num_heads * c.head_dim, bias=c.attention_bias)
        self.k_proj = nn.Linear(c.hidden_size, c.num_kv_heads * c.head_dim, bias=c.attention_bias)
        self.v_proj = nn.Linear(c.hidden_size, c.num_kv_heads * c.head_dim, bias=c.attention_bias)
        self.o_proj = nn.Linear(c.num_heads * c.head_dim, c.hidden_size, bias=c.attention_bias)
        self._head_dim = c.head_dim
        self._grouped = c.num_kv_heads < c.num_heads

    def forward(self, x: Tensor, rotation: Rotation) -> Tensor:
        queries, keys, values = (
            projection(x).unflatten(2, (-1, self._head_dim)).transpose(1, 2)  # [recordings, heads, positions, head_dim]
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        attended = F.scaled_dot_product_attention(
            rotation.apply(queries), rotation.apply(keys), values, is_causal=True, enable_gqa=self._grouped
        )
        y: Tensor = self.o_proj(attended.transpose(1, 2).flatten(2))
        return y


class EncoderMLP(nn.Module):
    def __init__(self, c: TransformerConfig) -> None:
        super().__init__()
        self.fc1 = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.fc2 = nn.Linear(c.intermediate_size, c.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.fc2(F.gelu(self.fc1(x)))
        return y


class EncoderLayerScale(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((size,), LAYER_SCALE))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x


class SplitQuantizer(nn.Module):
    """Two residual quantizers side by side: both see the same vectors."""

    def __init__(self, c: CodecEncoderConfig) -> None:
        super().__init__()
        self.semantic_residual_vector_quantizer = ResidualQuantizer(c, c.num_semantic)
        self.acoustic_residual_vector_quantizer = ResidualQuantizer(c, c.num_acoustic)

    def encode(self, x: Tensor, num_codebooks: int) -> Tensor:
        """x [recordings, hidden, frames] -> codes [recordings, frames, num_codebooks], of the first codebooks."""
        semantic, acoustic = self.semantic_residual_vector_quantizer, self.acoustic_residual_vector_quantizer
        num_semantic = len(semantic.layers)
        return torch.cat([*semantic.codes(x, num_semantic), *acoustic.codes(x, num_codebooks - num_semantic)], dim=-1)


class ResidualQuantizer(nn.Module):
    def __init__(self, c: CodecEncoderConfig, num_books: int) -> None:
        super().__init__()
        hidden = c.stack.hidden_size
        self.input_proj = nn.Conv1d(hidden, c.vector_dim, 1, bias=False)
        self.output_proj = nn.Conv1d(c.vector_dim, hidden, 1, bias=False)  # in the checkpoint, unused in encoding
        self.layers = nn.ModuleList(
            nn.ModuleDict({"codebook": EncoderCodebook(c.codebook_size, c.codebook_dim)}) for _ in range(num_books)
        )

    def codes(self, x: Tensor, num_books: int) -> Iterator[Tensor]:
        """x [recordings, hidden, frames] -> for each of the first codebooks, codes [recordings, frames, 1]."""
        residual = self.input_proj(x).transpose(1, 2)  # [recordings, frames, vector_dim]
        for layer in self.layers[:num_books]:
            nearest, entries = layer.get_submodule("codebook")(residual)
            yield nearest[..., None]
            residual = residual - entries


class EncoderCodebook(nn.Module):
    initialized: Tensor
    cluster_usage: Tensor
    embed_sum: Tensor

    def __init__(self, size: int, dim: int) -> None:
        super().__init__()
        self.register_buffer("initialized", torch.ones(1))  # in the checkpoint; only continued training uses it
        self.register_buffer("cluster_usage", torch.ones(size))
        self.register_buffer("embed_sum", torch.zeros(size, dim))

    def entries(self) -> Tensor:  # [size, dim]
        return self.embed_sum / self.cluster_usage.clamp(min=USAGE_EPS)[:, None]

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x [recordings, frames, dim] -> codes of the nearest entries [recordings, frames], and these entries."""
        entries = self.entries()
        distances = torch.cdist(x.flatten(0, 1)[None].float(), entries[None].float())[0]
        codes = distances.argmin(-1).view(x.shape[:2])
        return codes, F.embedding(codes, entries)
