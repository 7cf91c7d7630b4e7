"""The codec decoder in a few fused kernels, with channels last: CUDA runs it in float16 instead of the plain modules.

It has the same weights and, up to rounding, the same arithmetic. Its state has another layout: tails are
[kept, channels] with channels padded, keys and values are rings. A call is a fixed sequence of kernels of fixed shapes
and never waits for the host, so that it can be captured in a CUDA graph.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sonorant.engine.kernels.codec.codec_layers import (
    MAX_UNIT_CHANNELS,
    PRODUCT_CHANNELS,
    Convolution,
    Snake,
    padded_channels,
)
from sonorant.engine.kernels.codec.convolution import convolve, residual_unit
from sonorant.engine.kernels.codec.depthwise import DepthwiseNorm, depthwise_norm
from sonorant.engine.kernels.codec.packed_convolution import PackedConvolution, PackedUnit
from sonorant.engine.kernels.codec.resident_unit import ResidentUnit
from sonorant.engine.kernels.codec.tails import BufferShape, Tails
from sonorant.engine.kernels.codec.waveform import waveform
from sonorant.engine.model.codec.code2wav import (
    SNAKE_EPS,
    CausalConv,
    CausalTransposedConv,
    Code2Wav,
    ConvNeXtBlock,
    LatentUpsampling,
    ResidualUnit,
    SnakeBeta,
    UpsamplingBlock,
)
from sonorant.engine.model.codec.code2wav_fused_transformer import FusedWindowTransformer
from sonorant.engine.model.codec.code2wav_state import CodecState


@dataclass(frozen=True, slots=True)
class _Activated:
    """A convolution and the activation after it."""

    convolution: Convolution
    activation: Snake
    packed: PackedConvolution | None

    @classmethod
    def of(cls, convolution: Convolution, activation: Snake) -> "_Activated":
        return cls(convolution, activation, PackedConvolution.of(convolution, activation))

    def run(self, x: Tensor, activated: Tensor) -> None:
        if self.packed is not None and self.packed.suits(x):
            self.packed.run(x, activated=activated)
        else:
            convolve(x, self.convolution, activation=self.activation, activated=activated)


@dataclass(frozen=True, slots=True)
class _Unit:
    first: _Activated
    second: Convolution
    activation: Snake  # after the residual sum
    taps: Tensor | None  # of the last convolution, behind the last unit
    packed: PackedUnit | ResidentUnit | None

    @classmethod
    def of(cls, unit: ResidualUnit, activation: Snake, taps: Tensor | None) -> "_Unit":
        convolutions, between = (_convolution(unit.conv1), _convolution(unit.conv2)), _snake(unit.act2)
        packed = ResidentUnit.of(convolutions, (between, activation), taps) or (
            PackedUnit.of(convolutions, (between, activation)) if taps is None else None
        )
        return cls(_Activated.of(convolutions[0], between), convolutions[1], activation, taps, packed)

    def run(self, x: Tensor, *, residual: Tensor, plain: Tensor | None, activated: Tensor) -> None:
        """Do what `residual_unit` does."""
        if self.packed is not None and self.packed.suits(x):
            self.packed.run(x, residual=residual, plain=plain, activated=activated)
        elif self.taps is not None or x.shape[2] <= MAX_UNIT_CHANNELS:
            convolutions, snakes = (self.first.convolution, self.second), (self.first.activation, self.activation)
            residual_unit(x, convolutions, snakes, residual=residual, plain=plain, activated=activated, taps=self.taps)
        else:
            hidden = torch.empty_like(residual)
            self.first.run(x, hidden)
            convolve(
                hidden, self.second, activation=self.activation, residual=residual, plain=plain, activated=activated
            )


@dataclass(frozen=True, slots=True)
class _Block:
    upsampling: Convolution
    activation: Snake  # after it
    units: list[_Unit]


@dataclass(frozen=True, slots=True)
class _ConvNeXt:
    upsampling: Tensor  # [ratio * channels, channels]
    upsampling_bias: Tensor  # [ratio * channels]
    depthwise: DepthwiseNorm
    inner: nn.Linear
    outer: nn.Linear


class FusedCode2Wav:
    """Built from a prepared `Code2Wav`, with the same methods `new_state`, `step` and `attend`. Latent and codebook
    dimensions must be multiples of 16."""

    def __init__(self, plain: Code2Wav) -> None:
        self.config = plain.config
        first, *blocks, last_activation, last = plain.decoder
        assert isinstance(first, CausalConv) and isinstance(last, CausalConv) and isinstance(last_activation, SnakeBeta)
        self._quantizer = plain.quantizer
        self._transformer = FusedWindowTransformer(plain.pre_transformer)
        self._pre_conv = _convolution(plain.pre_conv)
        self._latent = [_conv_next(layer) for layer in plain.upsample if isinstance(layer, LatentUpsampling)]
        assert last.conv.bias is not None
        self._last_bias = last.conv.bias.float()
        by_channel = _padded(last.conv.weight[0], 0)  # [channels, taps]
        self._num_taps = by_channel.shape[1]
        last_taps = F.pad(by_channel, (0, PRODUCT_CHANNELS // 2 - self._num_taps)).repeat(1, 2)
        befores = [_activation_before(block) for block in blocks] + [last_activation]
        self._first = _Activated.of(_convolution(first), _snake(befores[0]))
        self._blocks = []
        for block, after in zip(blocks, befores[1:], strict=True):
            assert isinstance(block, UpsamplingBlock)
            self._blocks.append(_block(block, after, last_taps if block is blocks[-1] else None))
        self._tails = Tails(self._buffer_shapes(), self._last_bias.device)

    def _buffer_shapes(self) -> list[BufferShape]:
        """Shapes of the extended buffers, in the order in which they are used."""
        c = self.config
        shapes = [BufferShape(self._pre_conv.num_kept, 1, c.codebook_dim)]
        positions = 1
        for ratio, layer in zip(c.upsampling_ratios, self._latent, strict=True):
            positions *= ratio
            shapes.append(BufferShape(len(layer.depthwise.taps) - 1, positions, c.latent_dim))
        first = self._first.convolution
        shapes.append(BufferShape(first.num_kept, positions, c.latent_dim))
        channels = len(first.bias)
        for rate, block in zip(c.upsample_rates, self._blocks, strict=True):
            shapes.append(BufferShape(block.upsampling.num_kept, positions, channels))
            positions *= rate
            channels = len(block.upsampling.bias) // rate
            shapes += [BufferShape(unit.first.convolution.num_kept, positions, channels) for unit in block.units]
        return [*shapes, BufferShape(self._num_taps - 1, positions, PRODUCT_CHANNELS)]

    def new_state(self, num_slots: int) -> CodecState:
        table = self._quantizer.table
        return CodecState.zeros(self.config, num_slots, self._tails.size, table.device, table.dtype)

    def step(self, codes: Tensor, state: CodecState, slots: Tensor) -> Tensor:
        """Decode like `Code2Wav.step`, but return float32 samples."""
        num_rows, num_frames = codes.shape[:2]
        array = self._tails.load(state.tails, slots, num_frames)
        buffers = self._tails.buffers(array, num_rows, num_frames)
        self._latents(codes, state, slots, buffers)
        x = self._decode(buffers[1 + len(self._latent) :])
        self._tails.store(array, state.tails, slots, num_frames)
        state.num_frames.index_copy_(0, slots, state.num_frames.index_select(0, slots) + num_frames)
        return x

    def attend(self, codes: Tensor, state: CodecState, slots: Tensor) -> None:
        """See `Code2Wav.attend`."""
        num_rows, num_frames = codes.shape[:2]
        tails = state.tails[:, : self._pre_conv.num_kept * self.config.codebook_dim]  # those of the first buffer
        kept = tails.index_select(0, slots).view(num_rows, self._pre_conv.num_kept, -1)
        extended = torch.cat((kept, self._quantizer(codes)), dim=1)
        x = extended.new_empty(num_rows, num_frames, self.config.latent_dim)
        convolve(extended, self._pre_conv, plain=x)
        self._transformer(x, state, slots)
        tails.index_copy_(0, slots, extended[:, num_frames:].flatten(1))
        state.num_frames.index_copy_(0, slots, state.num_frames.index_select(0, slots) + num_frames)

    def _latents(self, codes: Tensor, state: CodecState, slots: Tensor, buffers: list[Tensor]) -> None:
        """Compute the latents of the codes, up to the input buffer of the first convolution of `_decode`."""
        c = self.config
        num_rows, num_frames = codes.shape[:2]
        buffers[0][:, self._pre_conv.num_kept :] = self._quantizer(codes)
        x = buffers[0].new_empty(num_rows, num_frames, c.latent_dim)
        convolve(buffers[0], self._pre_conv, plain=x)
        x = self._transformer(x, state, slots)
        for layer, buffer, following in zip(self._latent, buffers[1:], buffers[2:], strict=False):
            num_new = buffer.shape[1] - len(layer.depthwise.taps) + 1
            new = buffer[:, -num_new:]
            new.copy_(F.linear(x, layer.upsampling, layer.upsampling_bias).view_as(new))
            y = layer.outer(F.gelu(layer.inner(depthwise_norm(buffer, layer.depthwise))))
            if layer is self._latent[-1]:
                torch.add(new, y, out=following[:, -num_new:])
            else:
                x = new + y

    def _decode(self, buffers: list[Tensor]) -> Tensor:
        """Compute samples [rows, n], float32, from the latents in the first buffer."""
        remaining = iter(buffers)
        buffer, following = next(remaining), next(remaining)
        self._first.run(buffer, following)
        for block in self._blocks:
            buffer, following = following, next(remaining)
            up = block.upsampling
            num_new = (buffer.shape[1] - up.num_kept) * up.stride
            x = buffer.new_empty(len(buffer), num_new, following.shape[2])
            convolve(buffer, up, activation=block.activation, plain=x, activated=following)
            for unit in block.units:
                buffer, following = following, next(remaining)
                # After the last unit, only the activated output is used.
                plain = None if unit is block.units[-1] else torch.empty_like(x)
                unit.run(buffer, residual=x, plain=plain, activated=following)
                x = x if plain is None else plain
        return waveform(following, self._last_bias, self._num_taps)


def _block(block: UpsamplingBlock, after: SnakeBeta, last_taps: Tensor | None) -> _Block:
    """`last_taps`: of the convolution after the last block."""
    _, upsampling, *modules = block.block
    assert isinstance(upsampling, CausalTransposedConv)
    units = [module for module in modules if isinstance(module, ResidualUnit)]
    first, *rest = [_snake(unit.act1) for unit in units] + [_snake(after)]
    stride = upsampling.stride
    repeated = Snake(first.frequency.repeat(stride), first.magnitude.repeat(stride))
    taps = [None] * (len(units) - 1) + [last_taps]
    return _Block(_transposed(upsampling), repeated, [_Unit.of(*each) for each in zip(units, rest, taps, strict=True)])


def _conv_next(layer: LatentUpsampling) -> _ConvNeXt:
    upsampling, block = layer
    assert isinstance(upsampling, CausalTransposedConv) and isinstance(block, ConvNeXtBlock)
    depthwise, norm = block.dwconv.conv, block.norm
    assert depthwise.bias is not None
    taps = depthwise.weight[:, 0].T.float().contiguous()
    parameters = DepthwiseNorm(taps, depthwise.bias.float(), norm.weight.float(), norm.bias.float(), norm.eps)
    by_output = upsampling.weight.view(-1, upsampling.stride, upsampling.weight.shape[1])  # [out, stride, in]
    weight = by_output.transpose(0, 1).flatten(0, 1).contiguous()
    bias = upsampling.bias.view(-1, upsampling.stride).T.flatten().contiguous()
    return _ConvNeXt(weight, bias, parameters, block.pwconv1, block.pwconv2)


def _activation_before(block: nn.Module) -> SnakeBeta:
    assert isinstance(block, UpsamplingBlock)
    activation = block.block[0]
    assert isinstance(activation, SnakeBeta)
    return activation


def _convolution(module: CausalConv) -> Convolution:
    conv = module.conv
    assert conv.bias is not None
    weight = _padded(conv.weight.permute(2, 1, 0), 1, 2)  # [taps, in, out]
    return Convolution(weight.flatten(0, 1), _padded(conv.bias.float(), 0), len(weight), conv.dilation[0])


def _transposed(module: CausalTransposedConv) -> Convolution:
    by_output = module.weight.view(-1, module.stride, *module.weight.shape[1:])  # [out, stride, in, taps]
    weight = _padded(by_output.permute(3, 2, 1, 0), 1, 3)  # [taps, in, stride, out]
    bias = _padded(module.bias.view(-1, module.stride).T.float(), 1)
    return Convolution(weight.flatten(0, 1).flatten(1), bias.flatten(), len(weight), stride=module.stride)


def _snake(module: SnakeBeta) -> Snake:
    """Parameters of the activation. It maps the zeros in padded channels to zeros."""
    frequency, magnitude = module.alpha.float().exp(), (module.beta.float().exp() + SNAKE_EPS).reciprocal()
    return Snake(_padded(frequency, 0), _padded(magnitude, 0))


def _padded(x: Tensor, *dims: int) -> Tensor:
    """Pad these dimensions, which are channels, with zeros at the end; the result is contiguous."""
    padding = [0] * (2 * x.ndim)
    for dim in dims:
        padding[2 * (x.ndim - 1 - dim) + 1] = padded_channels(x.shape[dim]) - x.shape[dim]
    return F.pad(x, padding).contiguous()
