"""Runs the codec's encoder by compiled functions, with the same weights. Channels of convolutions are filled up to
groups with channels that are always zero.

It is made from a `CodecEncoder` that has loaded its weights, and needs it no longer.
"""

from typing import Any

import torch
from torch import Tensor, nn

from sonorant.engine.cpu.library import LANES, Kept, at, structure
from sonorant.engine.cpu.packing import Conv, conv_of, in_groups, padded
from sonorant.engine.model.codec.codec_encoder import (
    CodecEncoder,
    EncoderCodebook,
    EncoderConv,
    EncoderResidualUnit,
    EncoderTransformerLayer,
    ResidualQuantizer,
)
from sonorant.engine.model.layers import RotaryTable

TAPS, UNIT_TAPS = 7, 3  # as in encoder.c
CODES = 2**15  # that sixteen bits hold


def fits(encoder: CodecEncoder) -> bool:
    """Whether encoder.c can run this network."""
    c = encoder.config
    stack, books = c.stack, (c.vector_dim, c.codebook_dim, c.codebook_size)
    sizes = (stack.hidden_size, stack.intermediate_size, stack.head_dim, *books)
    kernels = (c.kernel_size, c.residual_kernel_size, c.last_kernel_size)
    is_plain = c.num_residual_layers == 1 and not c.conv_shortcut and c.frame_stride == 2
    is_even = all(not size % LANES for size in sizes) and c.vector_dim == c.codebook_dim
    return is_plain and is_even and c.codebook_size <= CODES and kernels == (TAPS, UNIT_TAPS, UNIT_TAPS)


class CompiledCodecEncoder:
    def __init__(self, functions: Any, encoder: CodecEncoder) -> None:
        """`functions` is `sonorant.engine.cpu.library.library()`; `encoder` is in float32 and `fits`."""
        self._functions = functions
        self._stack = encoder.config.stack
        self._kept = Kept()
        self.frame_samples, self._num_codebooks = encoder.frame_samples, encoder.num_codebooks
        self._vector_samples = encoder.frame_samples // encoder.config.frame_stride
        with torch.inference_mode():
            self._encoder = self._structure(encoder)

    def __call__(self, samples: Tensor) -> Tensor:
        """Like `CodecEncoder`; the codes are int16."""
        samples = samples.contiguous()
        table = RotaryTable(self._stack, -(-len(samples) // self._vector_samples), samples.device, torch.float32)
        codes = torch.empty(-(-len(samples) // self.frame_samples), self._num_codebooks, dtype=torch.int16)
        addresses = map(at, (table.cos, table.sin, codes))
        if self._functions.encode_recording(self._encoder, at(samples), len(samples), *addresses):
            raise MemoryError(f"no memory to encode a recording of {len(samples)} samples")
        return codes

    # The network, as structures

    def _structure(self, encoder: CodecEncoder) -> Any:
        c = encoder.config
        first, *layers, _, last = encoder.encoder.layers
        assert isinstance(first, EncoderConv) and isinstance(last, EncoderConv)
        stages = [self._stage(*layers[at : at + 3]) for at in range(0, len(layers), 3)]
        blocks = [
            self._layer(each)
            for each in encoder.encoder_transformer.layers
            if isinstance(each, EncoderTransformerLayer)
        ]
        semantic = encoder.quantizer.semantic_residual_vector_quantizer
        acoustic = encoder.quantizer.acoustic_residual_vector_quantizer
        books = [self._book(each) for each in (*semantic.layers, *acoustic.layers)[: encoder.num_codebooks]]
        return structure(
            "CodecEncoder",
            first=self._conv(first.conv.weight, first.conv.bias),
            num_stages=len(stages),
            stages=self._kept.array("Stage", stages),
            last=self._conv(last.conv.weight, last.conv.bias),
            num_layers=len(blocks),
            heads=c.stack.num_heads,
            kv_heads=c.stack.num_kv_heads,
            head_dim=c.stack.head_dim,
            eps=c.stack.rms_norm_eps,
            layers=self._kept.array("EncoderLayer", blocks),
            downsample=self._strided(encoder.downsample),
            num_semantic=c.num_semantic,
            num_books=len(books),
            semantic=self._projection(semantic),
            acoustic=self._projection(acoustic),
            books=self._kept.array("Conv", books),
        )

    def _stage(self, unit: nn.Module, _: nn.Module, down: nn.Module) -> tuple[Any, ...]:
        assert isinstance(unit, EncoderResidualUnit) and isinstance(down, EncoderConv)
        _, wide, _, narrow = unit.block
        assert isinstance(wide, EncoderConv) and isinstance(narrow, EncoderConv)
        inner = self._conv(wide.conv.weight, wide.conv.bias), self._conv(narrow.conv.weight, narrow.conv.bias)
        return down.stride, in_groups(down.conv.in_channels), *inner, self._strided(down)

    def _layer(self, layer: EncoderTransformerLayer) -> tuple[Any, ...]:
        attention, mlp, tensor = layer.self_attn, layer.mlp, self._kept.tensor
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        weights: list[Tensor] = [each.weight for each in projections]
        biases: list[Tensor] = [each.bias for each in projections if each.bias is not None]
        scale = layer.self_attn_layer_scale.scale
        return (
            *(tensor(each) for each in (layer.input_layernorm.weight, layer.input_layernorm.bias)),
            *(tensor(each) for each in (layer.post_attention_layernorm.weight, layer.post_attention_layernorm.bias)),
            self._product(torch.cat(weights), torch.cat(biases) if biases else None),
            self._product(scale[:, None] * attention.o_proj.weight, _scaled(attention.o_proj.bias, scale)),
            self._product(mlp.fc1.weight),
            self._product(layer.mlp_layer_scale.scale[:, None] * mlp.fc2.weight),
        )

    def _projection(self, quantizer: ResidualQuantizer) -> Conv:
        return self._conv(quantizer.input_proj.weight, None)

    def _book(self, layer: nn.Module) -> Conv:
        """The largest x e - e e / 2 is that of the nearest entry e."""
        book = layer.get_submodule("codebook")
        assert isinstance(book, EncoderCodebook)
        entries = book.entries()
        return self._product(entries, -entries.square().sum(-1) / 2)

    def _strided(self, conv: EncoderConv) -> Conv:
        """A convolution of twice as many positions as its stride, as one of two groups of positions side by side."""
        weight = padded(conv.conv.weight, 1)
        pairs = weight.reshape(*weight.shape[:2], 2, conv.stride)
        grouped = pairs.permute(0, 3, 1, 2).flatten(1, 2)  # [out, stride * in, 2]
        return self._conv(grouped, conv.conv.bias)

    def _product(self, weight: Tensor, bias: Tensor | None = None) -> Conv:
        return self._conv(weight[:, :, None], bias)

    def _conv(self, weight: Tensor, bias: Tensor | None) -> Conv:
        return conv_of(self._kept, weight, bias)


def _scaled(bias: Tensor | None, scale: Tensor) -> Tensor | None:
    return None if bias is None else scale * bias
