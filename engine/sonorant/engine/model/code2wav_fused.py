"""The codec decoder in a few fused kernels, with channels last: CUDA runs it in float16 instead of the plain modules.

It has the same weights and, up to rounding, the same arithmetic. Its state has another layout: tails are
[kept, channels] with channels padded, keys and values are rings. A call is a fixed sequence of kernels of fixed shapes
and never waits for the host, so that it can be captured in a CUDA graph.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sonorant.engine.kernels.convolution import (
    MAX_UNIT_CHANNELS,
    PRODUCT_CHANNELS,
    Convolution,
    Snake,
    convolve,
    padded_channels,
    residual_unit,
)
from sonorant.engine.kernels.depthwise import DepthwiseNorm, depthwise_norm
from sonorant.engine.kernels.tails import BufferShape, Tails
from sonorant.engine.kernels.waveform import waveform
from sonorant.engine.model.code2wav import (
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
from sonorant.engine.model.code2wav_fused_transformer import FusedWindowTransformer
from sonorant.engine.model.code2wav_state import CodecState


@dataclass(frozen=True, slots=True)
class _Unit:
    convolutions: tuple[Convolution, Convolution]
    activation: Snake  # between them


@dataclass(frozen=True, slots=True)
class _Block:
    upsampling: Convolution
    units: list[_Unit]
    activations: list[Snake]  # the one before each unit, then the one after the last


@dataclass(frozen=True, slots=True)
class _ConvNeXt:
    upsampling: Tensor  # [ratio * channels, channels]
    upsampling_bias: Tensor  # [ratio * channels]
    depthwise: DepthwiseNorm
    inner: nn.Linear
    outer: nn.Linear


class FusedCode2Wav:
    """Built from a prepared `Code2Wav`, with the same methods `new_state` and `step`. Latent and codebook dimensions
    must be multiples of 16."""

    def __init__(self, plain: Code2Wav) -> None:
        self.config = plain.config
        first, *blocks, last_activation, last = plain.decoder
        assert isinstance(first, CausalConv) and isinstance(last, CausalConv) and isinstance(last_activation, SnakeBeta)
        self._quantizer = plain.quantizer
        self._transformer = FusedWindowTransformer(plain.pre_transformer)
        self._pre_conv = _convolution(plain.pre_conv)
        self._latent = [_conv_next(layer) for layer in plain.upsample if isinstance(layer, LatentUpsampling)]
        self._first = _convolution(first)
        self._blocks = []
        befores = [_activation_before(block) for block in blocks] + [last_activation]
        for block, after in zip(blocks, befores[1:], strict=True):
            assert isinstance(block, UpsamplingBlock)
            self._blocks.append(_block(block, after))
        self._first_activation = _snake(befores[0])
        assert last.conv.bias is not None
        self._last_bias = last.conv.bias.float()
        by_channel = _padded(last.conv.weight[0], 0)  # [channels, taps]
        self._num_taps = by_channel.shape[1]
        self._last_taps = F.pad(by_channel, (0, PRODUCT_CHANNELS // 2 - self._num_taps)).repeat(1, 2)
        self._tails = Tails(self._buffer_shapes(), self._last_bias.device)

    def _buffer_shapes(self) -> list[BufferShape]:
        """Shapes of the extended buffers, in the order in which they are used."""
        c = self.config
        shapes = [BufferShape(self._pre_conv.num_kept, 1, c.codebook_dim)]
        positions = 1
        for ratio, layer in zip(c.upsampling_ratios, self._latent, strict=True):
            positions *= ratio
            shapes.append(BufferShape(len(layer.depthwise.taps) - 1, positions, c.latent_dim))
        shapes.append(BufferShape(self._first.num_kept, positions, c.latent_dim))
        channels = len(self._first.bias)
        for rate, block in zip(c.upsample_rates, self._blocks, strict=True):
            shapes.append(BufferShape(block.upsampling.num_kept, positions, channels))
            positions *= rate
            channels = len(block.upsampling.bias) // rate
            shapes += [BufferShape(unit.convolutions[0].num_kept, positions, channels) for unit in block.units]
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
        convolve(buffer, self._first, activation=self._first_activation, activated=following)
        for block in self._blocks:
            buffer, following = following, next(remaining)
            up = block.upsampling
            num_new = (buffer.shape[1] - up.num_kept) * up.stride
            x = buffer.new_empty(len(buffer), num_new, following.shape[2])
            convolve(buffer, up, activation=block.activations[0], plain=x, activated=following)
            for unit, activation in zip(block.units, block.activations[1:], strict=True):
                buffer, following = following, next(remaining)
                # After the last unit, only the activated output is used.
                plain = None if unit is block.units[-1] else torch.empty_like(x)
                is_last = block is self._blocks[-1] and plain is None
                taps = self._last_taps if is_last else None
                _residual(unit, activation, buffer, x, plain, following, taps)
                x = x if plain is None else plain
        return waveform(following, self._last_bias, self._num_taps)


def _residual(
    unit: _Unit,
    activation: Snake,
    x: Tensor,
    residual: Tensor,
    plain: Tensor | None,
    activated: Tensor,
    taps: Tensor | None,
) -> None:
    if taps is not None or x.shape[2] <= MAX_UNIT_CHANNELS:
        snakes = unit.activation, activation
        residual_unit(x, unit.convolutions, snakes, residual=residual, plain=plain, activated=activated, taps=taps)
        return
    hidden = torch.empty_like(residual)
    first, second = unit.convolutions
    convolve(x, first, activation=unit.activation, activated=hidden)
    convolve(hidden, second, activation=activation, residual=residual, plain=plain, activated=activated)


def _block(block: UpsamplingBlock, after: SnakeBeta) -> _Block:
    _, upsampling, *units = block.block
    assert isinstance(upsampling, CausalTransposedConv)
    activations, packed = [], []
    for unit in units:
        assert isinstance(unit, ResidualUnit)
        activations.append(_snake(unit.act1))
        convolutions = _convolution(unit.conv1), _convolution(unit.conv2)
        packed.append(_Unit(convolutions, _snake(unit.act2)))
    stride = upsampling.stride
    first, rest = activations[0], activations[1:]
    repeated = Snake(first.frequency.repeat(stride), first.magnitude.repeat(stride))
    return _Block(_transposed(upsampling), packed, [repeated, *rest, _snake(after)])


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
