"""Runs the speaker encoder by compiled functions, with the same weights. Channels that fill no group are filled up with
channels that are always zero.

It is made from a `SpeakerEncoder` that has loaded its weights, and needs it no longer.
"""

from typing import Any

import torch
from torch import Tensor

from sonorant.engine.checkpoint.config import SpeakerEncoderConfig
from sonorant.engine.cpu.library import LANES, Kept, at, structure
from sonorant.engine.cpu.packing import Conv, conv_of, padded
from sonorant.engine.model.speaker_encoder import ReflectedConv, SpeakerEncoder, SqueezeExcitationRes2Net, TimeDelay


def fits(config: SpeakerEncoderConfig) -> bool:
    """Whether speaker.c can run this network: the parts of a block and what attends may have any number of channels."""
    first, *blocks, last = config.channels
    is_even = all(not size % LANES for size in (config.mel_dim, first, last, config.enc_dim))
    return is_even and set(blocks) == {first} and config.kernel_sizes[-1] == 1 and config.res2net_scale > 1


class CompiledSpeakerEncoder:
    def __init__(self, functions: Any, encoder: SpeakerEncoder) -> None:
        """`functions` is `sonorant.engine.cpu.library.library()`; `encoder` is in float32, and its config `fits`."""
        self._functions = functions
        self._kept = Kept()
        self.min_frames = encoder.min_frames
        with torch.inference_mode():
            self._encoder = self._structure(encoder)

    def __call__(self, mel: Tensor) -> Tensor:
        """mel [frames, mels] float32, with at least `min_frames` -> [enc_dim]"""
        mel = mel.contiguous()
        x_vector = torch.empty(self._encoder.last.out)
        if self._functions.encode_speaker(self._encoder, at(mel), len(mel), at(x_vector)):
            raise MemoryError(f"no memory to encode {len(mel)} frames of a speaker")
        return x_vector

    # The network, as structures

    def _structure(self, encoder: SpeakerEncoder) -> Any:
        first, *blocks = encoder.blocks
        assert isinstance(first, TimeDelay)
        made = [self._block(each) for each in blocks if isinstance(each, SqueezeExcitationRes2Net)]
        attention = encoder.asp.tdnn.conv
        channels = encoder.mfa.conv.out_channels
        of_frame, of_all = attention.weight[:, :channels], attention.weight[:, channels:]
        return structure(
            "SpeakerEncoder",
            first=self._conv(first.conv),
            num_blocks=len(made),
            blocks=self._kept.array("SpeakerBlock", made),
            joined=self._conv(encoder.mfa.conv),
            attended=conv_of(self._kept, of_frame),
            whole=conv_of(self._kept, of_all, attention.bias),
            scored=self._conv(encoder.asp.conv),
            last=self._conv(encoder.fc),
        )

    def _block(self, block: SqueezeExcitationRes2Net) -> tuple[Any, ...]:
        scale = block.res2net_block.scale
        parts = [self._conv(each.conv) for each in block.res2net_block.blocks if isinstance(each, TimeDelay)]
        first, last = block.tdnn1.conv, block.tdnn2.conv
        return (
            scale,
            conv_of(self._kept, _in_parts(first.weight, 0, scale), _in_parts(_bias(first), 0, scale)),
            self._kept.array("Conv", parts),
            conv_of(self._kept, _in_parts(last.weight, 1, scale), last.bias),
            self._conv(block.se_block.conv1),
            self._conv(block.se_block.conv2),
        )

    def _conv(self, conv: ReflectedConv) -> Conv:
        return conv_of(self._kept, conv.weight, conv.bias, dilation=conv.dilation[0])


def _bias(conv: ReflectedConv) -> Tensor:
    assert conv.bias is not None
    return conv.bias


def _in_parts(tensor: Tensor, dim: int, count: int) -> Tensor:
    """Fill up the channels of each of `count` parts of a dimension."""
    shape = tensor.shape
    parts = tensor.reshape(*shape[:dim], count, -1, *shape[dim + 1 :])
    return padded(parts, dim + 1).flatten(dim, dim + 1)
