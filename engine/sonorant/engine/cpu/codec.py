"""Runs Code2Wav by compiled functions: with the same weights, and a state with its channels in another order.

The C code takes channels sixteen at a time. Where a network has fewer in the last group, they are filled up with
channels that are always zero. Weights of large networks are rounded to thirteen bits, which halves time and memory.

It is made from a `Code2Wav` that has loaded and prepared its weights.
"""

import platform
from ctypes import byref
from typing import Any

import torch
from torch import Tensor, nn

from sonorant.engine.cpu.library import LANES, Block, Codec, Conv, Kept, Latent, Layer, Snake, Unit
from sonorant.engine.cpu.library import CodecState as Slots
from sonorant.engine.cpu.packing import conv_of, in_groups, padded
from sonorant.engine.model.codec.code2wav import (
    CausalConv,
    CausalTransposedConv,
    Code2Wav,
    ConvNeXtBlock,
    LatentUpsampling,
    ResidualUnit,
    SnakeBeta,
    UpsamplingBlock,
)
from sonorant.engine.model.codec.code2wav_state import CodecState, Tail, TailLayout
from sonorant.engine.model.codec.code2wav_transformer import TransformerLayer
from sonorant.engine.sizes import MOST_WEIGHTS

ROUNDS = platform.machine() == "x86_64"  # others multiply whole numbers no faster than floats


def fits(decoder: Code2Wav) -> bool:
    """Whether codec.c can run this network. More than half of the channels of a group must be real: zeros cost time."""
    c = decoder.config
    channels = (c.decoder_dim >> len(c.upsample_rates), c.latent_dim, c.codebook_dim)
    sizes = (c.stack.hidden_size, c.stack.intermediate_size, c.stack.head_dim)
    return min(channels) > LANES // 2 and all(not size % LANES for size in sizes)


def is_rounded(decoder: Code2Wav) -> bool:
    """Whether weights are rounded."""
    return ROUNDS and sum(parameter.numel() for parameter in decoder.parameters()) > MOST_WEIGHTS


class CompiledCode2Wav:
    def __init__(self, functions: Any, decoder: Code2Wav) -> None:
        """`functions` is `sonorant.engine.cpu.library.library()`; `decoder` is in float32 and `fits`."""
        self._functions = functions
        self.is_rounded = is_rounded(decoder)
        self._config, self._tails = decoder.config, TailLayout()
        self._kept = Kept()
        self._codec = self._codec_of(decoder)

    def new_state(self, num_slots: int) -> CodecState:
        return CodecState.zeros(self._config, num_slots, self._tails.size, torch.device("cpu"), torch.float32)

    def step(self, codes: Tensor, state: CodecState, slots: Tensor) -> Tensor:
        """Like `Code2Wav.step`."""
        samples = torch.empty(len(codes), codes.shape[1] * self._codec.frame_samples)
        self._decode(codes, state, slots, samples.data_ptr())
        return samples

    def remember(self, codes: Tensor, state: CodecState, slots: Tensor) -> None:
        """Like `Code2Wav.remember`."""
        self._decode(codes, state, slots, None)

    def _decode(self, codes: Tensor, state: CodecState, slots: Tensor, samples: int | None) -> None:
        codes, slots = codes.contiguous(), slots.contiguous()
        arrays = (state.num_frames, state.tails, state.keys, state.values)
        places = Slots(*(each.data_ptr() for each in arrays), state.tails.shape[1], state.keys[0].numel())
        done = self._functions.decode_frames(
            byref(self._codec), byref(places), slots.data_ptr(), codes.data_ptr(), *codes.shape[:2], samples
        )
        if done == -1:
            raise MemoryError("no memory for a call of Code2Wav")
        if done != 0:
            raise IndexError(f"a code is not between 0 and {self._config.codebook_size - 1}")

    # The network, as structures

    def _codec_of(self, decoder: Code2Wav) -> Codec:
        c, transformer, kept = decoder.config, decoder.pre_transformer, self._kept
        first, *blocks, before_last, last = decoder.decoder
        assert isinstance(first, CausalConv) and isinstance(before_last, SnakeBeta) and isinstance(last, CausalConv)
        layers = [self._layer(layer) for layer in transformer.layers if isinstance(layer, TransformerLayer)]
        latents = [self._latent(each) for each in decoder.upsample if isinstance(each, LatentUpsampling)]
        waves = [self._block(block) for block in blocks if isinstance(block, UpsamplingBlock)]
        latent_rate = 1
        for ratio in c.upsampling_ratios:
            latent_rate *= ratio
        frame_samples = latent_rate
        for rate in c.upsample_rates:
            frame_samples *= rate
        exponents = torch.arange(0, c.stack.head_dim, 2).float() / c.stack.head_dim
        assert last.tail is not None and last.conv.bias is not None
        return Codec(
            books=c.num_quantizers,
            codebook_size=c.codebook_size,
            frame_samples=frame_samples,
            table=kept.tensor(padded(decoder.quantizer.table, -1)),
            pre=self._causal(decoder.pre_conv),
            input=self._linear(transformer.input_proj),
            num_layers=len(layers),
            heads=c.stack.num_heads,
            kv_heads=c.stack.num_kv_heads,
            head_dim=c.stack.head_dim,
            window=c.sliding_window,
            eps=c.stack.rms_norm_eps,
            periods=kept.tensor(c.stack.rope_theta**exponents),
            layers=(Layer * len(layers))(*layers),
            norm=kept.tensor(transformer.norm.weight),
            output=self._linear(transformer.output_proj),
            num_latents=len(latents),
            latents=(Latent * len(latents))(*latents),
            first=self._causal(first),
            num_blocks=len(waves),
            blocks=(Block * len(waves))(*waves),
            before_last=self._snake(before_last),
            last=kept.tensor(padded(last.conv.weight[0].T, 1)),
            last_bias=last.conv.bias.item(),
            last_tail=self._tail(last.tail),
        )

    def _layer(self, layer: TransformerLayer) -> Layer:
        mlp = layer.mlp
        return Layer(
            self._kept.tensor(layer.input_layernorm.weight),
            self._kept.tensor(layer.post_attention_layernorm.weight),
            self._product(layer.self_attn.weight, layer.self_attn.bias),
            self._linear(layer.self_attn.o_proj),
            self._product(torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]), None),
            self._linear(mlp.down_proj),
        )

    def _latent(self, latent: LatentUpsampling) -> Latent:
        up, mixer = latent
        assert isinstance(up, CausalTransposedConv) and isinstance(mixer, ConvNeXtBlock)
        depthwise = mixer.dwconv
        assert depthwise.tail is not None and depthwise.conv.bias is not None
        upsampling = self._transposed(up)
        return Latent(
            latent.ratio,
            upsampling.inputs,
            len(mixer.norm.weight),
            self._tail(depthwise.tail),
            upsampling,
            self._kept.tensor(padded(depthwise.conv.weight[:, 0].T, 1)),
            self._kept.tensor(padded(depthwise.conv.bias, 0)),
            self._kept.tensor(padded(mixer.norm.weight, 0)),
            self._kept.tensor(padded(mixer.norm.bias, 0)),
            self._linear(mixer.pwconv1),
            self._linear(mixer.pwconv2),
        )

    def _block(self, block: UpsamplingBlock) -> Block:
        activation, up, *units = block.block
        assert isinstance(activation, SnakeBeta) and isinstance(up, CausalTransposedConv)
        made = [self._unit(unit) for unit in units if isinstance(unit, ResidualUnit)]
        return Block(block.rate, self._snake(activation), self._transposed(up), (Unit * 3)(*made))

    def _unit(self, unit: ResidualUnit) -> Unit:
        return Unit(self._snake(unit.act1), self._causal(unit.conv1), self._snake(unit.act2), self._causal(unit.conv2))

    def _snake(self, snake: SnakeBeta) -> Snake:
        return Snake(*(self._kept.tensor(padded(each, 0)) for each in (snake.frequency, snake.magnitude)))

    def _causal(self, conv: CausalConv) -> Conv:
        return self._conv(conv.conv.weight, conv.conv.bias, conv.tail, conv.conv.dilation[0])

    def _transposed(self, conv: CausalTransposedConv) -> Conv:
        """Arrange the weights so that the outputs of a step follow each other, each with all its channels."""
        _, num_in, taps = conv.weight.shape
        weight = padded(conv.weight.view(-1, conv.stride, num_in, taps), 0).transpose(0, 1).flatten(0, 1)
        bias = padded(conv.bias.view(-1, conv.stride), 0).T.flatten()
        return self._conv(weight, bias, conv.tail)

    def _linear(self, linear: nn.Linear) -> Conv:
        return self._product(linear.weight, linear.bias)

    def _product(self, weight: Tensor, bias: Tensor | None) -> Conv:
        return self._conv(weight[:, :, None], bias, None)

    def _conv(self, weight: Tensor, bias: Tensor | None, tail: Tail | None, dilation: int = 1) -> Conv:
        start = 0 if tail is None else self._tail(tail)
        return conv_of(self._kept, weight, bias, dilation=dilation, tail=start, rounded=self.is_rounded)

    def _tail(self, tail: Tail) -> int:
        return self._tails.take(in_groups(tail.channels), tail.length).start
