"""Makes a narrower decoder of a trained one, to be trained further: fewer channels in the waveform's layers.

Of the channels that a layer hands on, those stay whose energy is most of what the next layers get. Each layer is then
fitted anew, front to back and by least squares, to do with what it still gets what it did before; so it also makes up
for what the layers before it have lost. Everything up to the latents stays as it is.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sonorant.engine.model.codec.code2wav import CausalConv, CausalTransposedConv, Code2Wav, SnakeBeta
from sonorant.training.codec.decoder import causal, layers_of, snake, transposed_conv

RIDGE = 1e-4  # of the inputs' mean variance


@torch.no_grad()
def narrowed(wide: Code2Wav, decoder_dim: int, latents: Tensor) -> Code2Wav:
    """Return a decoder of width `decoder_dim`, on the same device. `latents` [crops, latent_dim, n], as
    `decode_latents` returns them, are what it is fitted on."""
    narrow = Code2Wav(replace(wide.config, decoder_dim=decoder_dim)).to(latents.device)
    same = {name: tensor for name, tensor in wide.state_dict().items() if not name.startswith("decoder.")}
    narrow.load_state_dict(same, strict=False)
    old, new = layers_of(wide.decoder), layers_of(narrow.decoder)
    wanted = causal(old[0], latents)
    kept = _kept(decoder_dim, [(snake(old[1].block[0], wanted), old[1].block[1].conv.weight.transpose(0, 1))])
    everything = torch.arange(latents.shape[1], device=latents.device)
    made = _fitted(old[0], new[0], everything, kept, latents, wanted[:, kept])
    for place in range(1, len(old) - 2):
        following = old[place + 1].block[:2] if place + 3 < len(old) else old[-2:]
        made, wanted, kept = _block(old[place].block, new[place].block, following, made, wanted, kept)
    _take(old[-2], new[-2], kept)
    samples = causal(old[-1], snake(old[-2], wanted))
    _fitted(old[-1], new[-1], kept, torch.zeros(1, dtype=torch.long), snake(new[-2], made), samples)
    return narrow


def _block(
    old: Any, new: Any, following: Sequence[Any], made: Tensor, wanted: Tensor, kept: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Fit one upsampling block. `made` and `wanted` are its inputs in the narrow and in the wide decoder, `kept` the
    channels that these have in common; return the same of its outputs. `following`: activation and layer behind it."""
    inputs = kept
    _take(old[0], new[0], inputs)
    states = [transposed_conv(old[1], snake(old[0], wanted))]  # before and behind each unit of the wide decoder
    hidden = []
    for unit in old[2:]:
        hidden.append(causal(unit.conv1, snake(unit.act1, states[-1])))
        states.append(states[-1] + causal(unit.conv2, snake(unit.act2, hidden[-1])))
    readers = [(unit.act1, unit.conv1) for unit in old[2:]] + [(following[0], following[1])]
    heard = [(snake(activation, x), _weight(layer)) for x, (activation, layer) in zip(states, readers, strict=True)]
    width = new[1].conv.out_channels
    kept = _kept(width, heard)
    made = _fitted(old[1], new[1], inputs, kept, snake(new[0], made), states[0][:, kept])
    for unit, fitted, inside, after in zip(old[2:], new[2:], hidden, states[1:], strict=True):
        _take(unit.act1, fitted.act1, kept)
        own = _kept(width, [(snake(unit.act2, inside), _weight(unit.conv2))])
        through = _fitted(unit.conv1, fitted.conv1, kept, own, snake(fitted.act1, made), inside[:, own])
        _take(unit.act2, fitted.act2, own)
        rest = after[:, kept] - made
        made = made + _fitted(unit.conv2, fitted.conv2, own, kept, snake(fitted.act2, through), rest)
    return made, states[-1], kept


def _weight(layer: CausalConv | CausalTransposedConv) -> Tensor:
    """[out, in, taps]"""
    weight: Tensor = layer.conv.weight
    return weight.transpose(0, 1) if isinstance(layer, CausalTransposedConv) else weight


def _kept(number: int, heard: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Choose channels, in their order. `heard`: what layers get [crops, channels, n], and their weights [out, channels,
    taps]. Those stay from which most of what these layers make varies."""
    energy = torch.zeros((), device=heard[0][0].device)
    for x, weight in heard:
        own = x.transpose(0, 1).flatten(1).var(1) * weight.square().sum((0, 2))
        energy = energy + own / own.sum()
    chosen: Tensor = energy.topk(number).indices.sort().values
    return chosen


def _take(old: SnakeBeta, new: SnakeBeta, kept: Tensor) -> None:
    new.alpha.copy_(old.alpha[kept])
    new.beta.copy_(old.beta[kept])


def _fitted(old: Any, new: Any, inputs: Tensor, outputs: Tensor, x: Tensor, wanted: Tensor) -> Tensor:
    """Give `new` those weights of `old` that lie between the kept channels, then what brings its outputs for x
    [crops, in, n] nearest to `wanted`; return them."""
    if isinstance(old, CausalConv):
        conv: Any = old.conv
        new.conv.weight.copy_(conv.weight[outputs][:, inputs])
        new.conv.bias.copy_(conv.bias[outputs])
        taps, dilation = conv.kernel_size[0], conv.dilation[0]
        change, offset = _least_squares(x, wanted - causal(new, x), taps, dilation)
        new.conv.weight += change
        new.conv.bias += offset
        return causal(new, x)
    new.conv.weight.copy_(old.conv.weight[inputs][:, outputs])
    new.conv.bias.copy_(old.conv.bias[outputs])
    stride, taps = old.stride, old.conv.kernel_size[0] // old.stride
    missing = wanted - transposed_conv(new, x)
    crops, channels, _ = missing.shape
    steps = missing.view(crops, channels, -1, stride).transpose(2, 3).flatten(1, 2)  # [crops, out * stride, n]
    change, offset = _least_squares(x, steps, taps, 1)
    change = change.view(channels, stride, -1, taps).flip(3)  # the newest input first
    new.conv.weight += change.permute(2, 0, 3, 1).flatten(2)
    new.conv.bias += offset.view(-1, stride).mean(1)
    return transposed_conv(new, x)


def _least_squares(x: Tensor, wanted: Tensor, taps: int, dilation: int) -> tuple[Tensor, Tensor]:
    """Weights [out, in, taps] and offsets [out] with which a causal convolution of x comes nearest to `wanted`."""
    size = taps * x.shape[1] + 1
    square = torch.zeros(size, size, dtype=torch.float64, device=x.device)
    cross = torch.zeros(size, wanted.shape[1], dtype=torch.float64, device=x.device)
    for crop, target in zip(F.pad(x, ((taps - 1) * dilation, 0)), wanted, strict=True):
        seen = torch.cat([crop[:, tap * dilation :][:, : x.shape[2]] for tap in range(taps)])
        seen = torch.cat([seen, torch.ones_like(seen[:1])])
        square += (seen @ seen.T).double()
        cross += (seen @ target.T).double()
    count = square[-1, -1].clone()
    mean, offset = square[-1] / count, cross[-1] / count
    square -= count * mean[:, None] * mean  # now covariances
    cross -= count * mean[:, None] * offset
    inner, outer = square[:-1, :-1], cross[:-1]
    ridge = RIDGE * inner.diagonal().mean() * torch.eye(size - 1, dtype=torch.float64, device=x.device)
    found = torch.linalg.solve(inner + ridge, outer)
    offset = offset - mean[:-1] @ found
    weights = found.T.reshape(len(offset), taps, -1).transpose(1, 2)
    return weights.float(), offset.float()
