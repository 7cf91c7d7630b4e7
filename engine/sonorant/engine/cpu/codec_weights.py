"""Arranges the weights of a `Code2Wav` as codec.c needs them: tensors by the names of its layers.

The C code takes channels sixteen at a time. Where a network has fewer in the last group, they are filled up with
channels that are always zero. Weights of large networks are rounded to thirteen bits, which halves time and memory,
and the vectors of their codes to sixteen.
"""

import platform

import torch
from torch import Tensor, nn

from sonorant.engine.checkpoint.config import CodecDecoderConfig
from sonorant.engine.cpu.library import LANES
from sonorant.engine.cpu.packing import TINY, arranged, padded, to_wholes
from sonorant.engine.model.codec.code2wav import CausalConv, CausalTransposedConv, Code2Wav, Quantizer, SnakeBeta
from sonorant.engine.model.codec.code2wav_transformer import WindowAttention
from sonorant.engine.model.layers import MLP
from sonorant.engine.sizes import MOST_WEIGHTS

ROUNDS = platform.machine() == "x86_64"  # others multiply whole numbers no faster than floats
WHOLES, FLOATS = "code2wav-13bit-2", "code2wav-float32-3"  # named anew whenever other tensors are made of a checkpoint
TABLE_LIMIT = 32767


def fits(c: CodecDecoderConfig) -> bool:
    """Whether codec.c can run this network. More than half of the channels of a group must be real: zeros cost time."""
    channels = (c.decoder_dim >> len(c.upsample_rates), c.latent_dim, c.vector_dim)
    sizes = (c.stack.hidden_size, c.stack.intermediate_size, c.stack.head_dim)
    return min(channels) > LANES // 2 and all(not size % LANES for size in sizes)


def is_large(decoder: Code2Wav) -> bool:
    return sum(parameter.numel() for parameter in decoder.parameters()) > MOST_WEIGHTS


def conversion_of(decoder: Code2Wav) -> str:
    """Return WHOLES or FLOATS."""
    return WHOLES if ROUNDS and is_large(decoder) else FLOATS


def codec_weights(decoder: Code2Wav, conversion: str) -> dict[str, Tensor]:
    """`decoder` is prepared, in float32, and `fits`."""
    packing = _Packing(conversion)
    for name, module in decoder.named_modules():
        if module is not decoder.pre_conv:
            packing.add(name, module)
    packing.add_codes(decoder.quantizer, decoder.pre_conv.conv)
    return packing.made


class _Packing:
    def __init__(self, conversion: str) -> None:
        self.made: dict[str, Tensor] = {}
        self._rounds = conversion == WHOLES

    def add(self, name: str, module: nn.Module) -> None:
        match module:
            case SnakeBeta():
                self._put(name, frequency=padded(module.frequency, 0), magnitude=padded(module.magnitude, 0))
            case CausalTransposedConv():
                self._transposed(name, module)
            case CausalConv():
                self._causal(name, module.conv)
            case WindowAttention():
                self._conv(f"{name}.qkv", module.weight[:, :, None], module.bias)
            case MLP():
                both = torch.cat([module.gate_proj.weight, module.up_proj.weight])
                self._conv(f"{name}.gate_up", both[:, :, None], None)
            case nn.Linear() if not name.endswith((".gate_proj", ".up_proj")):
                self._conv(name, module.weight[:, :, None], module.bias)
            case nn.LayerNorm():
                self._put(name, weight=padded(module.weight, 0), bias=padded(module.bias, 0))
            case nn.RMSNorm():
                self._put(name, weight=module.weight)

    def add_codes(self, quantizer: Quantizer, conv: nn.Conv1d) -> None:
        """The first convolution is made to project the vectors of codes, too: that of the first book, and the sum of
        the others, side by side. Projected ones would be twice as much to keep. Both parts are scaled to the same size,
        as they are rounded together."""
        sizes = [vectors.abs().amax().clamp_min(TINY) for vectors, _ in quantizer.parts]
        weights = [
            torch.einsum("odt,dv->ovt", conv.weight, projection * size)
            for (_, projection), size in zip(quantizer.parts, sizes, strict=True)
        ]
        self._conv("pre_conv", torch.cat([padded(weight, 1) for weight in weights], 1), conv.bias)
        vectors = [vectors / size for (vectors, _), size in zip(quantizer.parts, sizes, strict=True)]
        self._table("quantizer", padded(torch.cat(vectors), -1))

    def _causal(self, name: str, conv: nn.Conv1d) -> None:
        assert conv.bias is not None
        if conv.groups > 1:
            self._put(name, weight=padded(conv.weight[:, 0].T, 1), bias=padded(conv.bias, 0))
        elif conv.out_channels == 1:
            self._put(name, weight=padded(conv.weight[0].T, 1), bias=padded(conv.bias, 0))
        else:
            self._conv(name, conv.weight, conv.bias)

    def _transposed(self, name: str, conv: CausalTransposedConv) -> None:
        """Arrange the weights so that the outputs of a step follow each other, each with all its channels."""
        _, num_in, taps = conv.weight.shape
        weight = padded(conv.weight.view(-1, conv.stride, num_in, taps), 0).transpose(0, 1).flatten(0, 1)
        self._conv(name, weight, padded(conv.bias.view(-1, conv.stride), 0).T.flatten())

    def _conv(self, name: str, weight: Tensor, bias: Tensor | None) -> None:
        """Pack a `weight` [out, in, taps]."""
        packed, scales = arranged(weight, rounded=self._rounds)
        zeros = weight.new_zeros(len(weight)) if bias is None else bias
        self._put(name, weight=packed, bias=padded(zeros, 0), **({} if scales is None else {"scales": scales}))

    def _table(self, name: str, table: Tensor) -> None:
        if self._rounds:
            whole, scales = to_wholes(table, 1, TABLE_LIMIT)
            self._put(name, table=whole, scales=scales)
        else:
            self._put(name, table=table)

    def _put(self, name: str, **tensors: Tensor) -> None:
        self.made |= {f"{name}.{each}": tensor.detach().contiguous() for each, tensor in tensors.items()}
