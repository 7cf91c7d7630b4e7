"""Runs Code2Wav by compiled functions: with the same weights, and a state with its channels in another order.

It is made of weights that `codec_weights` has arranged, which may be mapped from a file.
"""

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor

from sonorant.engine.checkpoint.config import CodecDecoderConfig
from sonorant.engine.cpu.library import LANES, NULL, Kept, at, structure
from sonorant.engine.cpu.packing import Conv, in_groups
from sonorant.engine.model.codec.code2wav import RESIDUAL_DILATIONS
from sonorant.engine.model.codec.code2wav_state import CodecState, TailLayout

Fields: TypeAlias = tuple[Any, ...]  # of a structure of api.h


class CompiledCode2Wav:
    def __init__(self, functions: Any, config: CodecDecoderConfig, weights: Mapping[str, Tensor]) -> None:
        """`functions` is `sonorant.engine.cpu.library.library()`; `weights` are from `codec_weights`."""
        self._functions = functions
        self.is_rounded = "quantizer.scales" in weights
        self._config, self._weights, self._tails = config, weights, TailLayout()
        self._kept = Kept()
        self._codec = self._structure()

    def new_state(self, num_slots: int) -> CodecState:
        return CodecState.zeros(self._config, num_slots, self._tails.size, torch.device("cpu"), torch.float32)

    def step(self, codes: Tensor, state: CodecState, slots: Tensor) -> Tensor:
        """Like `Code2Wav.step`."""
        samples = torch.empty(len(codes), codes.shape[1] * self._codec.frame_samples)
        self._decode(codes, state, slots, at(samples))
        return samples

    def remember(self, codes: Tensor, state: CodecState, slots: Tensor) -> None:
        """Like `Code2Wav.remember`."""
        self._decode(codes, state, slots, NULL)

    def _decode(self, codes: Tensor, state: CodecState, slots: Tensor, samples: Any) -> None:
        codes, slots = codes.contiguous(), slots.contiguous()
        places = structure(
            "State",
            num_frames=at(state.num_frames),
            tails=at(state.tails),
            keys=at(state.keys),
            values=at(state.values),
            tail_size=state.tails.shape[1],
            kept_size=state.keys[0].numel(),
        )
        done = self._functions.decode_frames(self._codec, places, at(slots), at(codes), *codes.shape[:2], samples)
        if done == -1:
            raise MemoryError("no memory for a call of Code2Wav")
        if done != 0:
            raise IndexError(f"a code is not between 0 and {self._config.codebook_size - 1}")

    # The network, as structures

    def _structure(self) -> Any:
        c = self._config
        num_blocks = len(c.upsample_rates)
        layers = [self._layer(f"pre_transformer.layers.{i}") for i in range(c.stack.num_layers)]
        latents = [self._latent(f"upsample.{i}", ratio) for i, ratio in enumerate(c.upsampling_ratios)]
        blocks = [self._block(f"decoder.{1 + i}.block", rate) for i, rate in enumerate(c.upsample_rates)]
        last = f"decoder.{num_blocks + 2}"
        exponents = torch.arange(0, c.stack.head_dim, 2).float() / c.stack.head_dim
        return structure(
            "Codec",
            books=c.num_quantizers,
            codebook_size=c.codebook_size,
            frame_samples=math.prod([*c.upsampling_ratios, *c.upsample_rates]),
            table=self._at("quantizer.table"),
            table_scales=self._at("quantizer.scales") if self.is_rounded else NULL,
            pre=self._conv("pre_conv"),
            input=self._conv("pre_transformer.input_proj"),
            num_layers=len(layers),
            heads=c.stack.num_heads,
            kv_heads=c.stack.num_kv_heads,
            head_dim=c.stack.head_dim,
            window=c.sliding_window,
            eps=c.stack.rms_norm_eps,
            periods=self._kept.tensor(c.stack.rope_theta**exponents),
            layers=self._kept.array("Layer", layers),
            norm=self._at("pre_transformer.norm.weight"),
            output=self._conv("pre_transformer.output_proj"),
            num_latents=len(latents),
            latents=self._kept.array("Latent", latents),
            first=self._conv("decoder.0"),
            num_blocks=len(blocks),
            blocks=self._kept.array("Block", blocks),
            before_last=self._snake(f"decoder.{num_blocks + 1}"),
            last=self._at(f"{last}.weight"),
            last_bias=self._weights[f"{last}.bias"][0].item(),
            last_tail=self._tail(f"{last}.weight"),
        )

    def _layer(self, name: str) -> Fields:
        norms = [self._at(f"{name}.{each}_layernorm.weight") for each in ("input", "post_attention")]
        convs = ("self_attn.qkv", "self_attn.o_proj", "mlp.gate_up", "mlp.down_proj")
        return *norms, *(self._conv(f"{name}.{each}") for each in convs)

    def _latent(self, name: str, ratio: int) -> Fields:
        up, mixer = self._conv(f"{name}.0"), f"{name}.1"
        return (
            ratio,
            up[0],  # its inputs
            self._config.latent_dim,
            self._tail(f"{mixer}.dwconv.weight"),
            up,
            *(self._at(f"{mixer}.{each}") for each in ("dwconv.weight", "dwconv.bias", "norm.weight", "norm.bias")),
            *(self._conv(f"{mixer}.{each}") for each in ("pwconv1", "pwconv2")),
        )

    def _block(self, name: str, rate: int) -> Fields:
        before, up = self._snake(f"{name}.0"), self._conv(f"{name}.1")
        units = [self._unit(f"{name}.{2 + i}", dilation) for i, dilation in enumerate(RESIDUAL_DILATIONS)]
        return rate, before, up, units

    def _unit(self, name: str, dilation: int) -> Fields:
        wide = self._conv(f"{name}.conv1", dilation)
        return self._snake(f"{name}.act1"), wide, self._snake(f"{name}.act2"), self._conv(f"{name}.conv2")

    def _snake(self, name: str) -> Fields:
        return self._at(f"{name}.frequency"), self._at(f"{name}.magnitude")

    def _conv(self, name: str, dilation: int = 1) -> Conv:
        weight = self._weights[f"{name}.weight"]  # as `arranged` makes it
        num_out, taps, used = LANES * len(weight), weight.shape[1], weight[0, 0].numel() // LANES
        num_in = in_groups(used)
        start = 0 if taps == 1 else self._tails.take(num_in, (taps - 1) * dilation).start
        scales = self._at(f"{name}.scales") if self.is_rounded else NULL
        sizes = num_in, num_out, taps, dilation, used, start
        return *sizes, self._at(f"{name}.weight"), scales, self._at(f"{name}.bias")

    def _tail(self, name: str) -> int:
        """Where the last inputs of a convolution with weights [taps, channels] are kept."""
        taps, channels = self._weights[name].shape
        return self._tails.take(channels, taps - 1).start

    def _at(self, name: str) -> Any:
        return self._kept.tensor(self._weights[name])
