"""The speaker encoder (ECAPA-TDNN): a log-mel spectrogram in, the x-vector of its speaker out. Base checkpoints only.

Attribute names are the checkpoint's tensor names (`speaker_encoder.*`). Between layers, x is [rows, channels, frames].
Source: QwenLM/Qwen3-TTS qwen_tts/core/models/modeling_qwen3_tts.py, `Qwen3TTSSpeakerEncoder`.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sonorant.engine.checkpoint.config import SpeakerEncoderConfig

VARIANCE_FLOOR = 1e-12


@dataclass(frozen=True, slots=True)
class Extent:
    """How many of the frames are the recording's; those behind them change nothing."""

    length: Tensor  # [1], int64
    inside: Tensor  # [frames]: whether a frame is the recording's

    @classmethod
    def of(cls, x: Tensor, length: Tensor) -> "Extent":
        """x: [rows, channels, frames]"""
        return cls(length, torch.arange(x.shape[2], device=x.device) < length)


class ReflectedConv(nn.Conv1d):
    """Convolution that sees the recording reflected at both of its ends."""

    def __init__(self, in_channels: int, out_channels: int, kernel: int = 1, dilation: int = 1) -> None:
        super().__init__(in_channels, out_channels, kernel, dilation=dilation, padding="same", padding_mode="reflect")
        self._reach = dilation * (kernel - 1)

    def forward(self, x: Tensor, extent: Extent | None = None) -> Tensor:
        if extent is None or not self._reach:
            return super().forward(x)
        before = self._reach // 2
        places = torch.arange(-before, x.shape[2] + self._reach - before, device=x.device).abs()
        last = extent.length - 1
        places = (last - (last - places).abs()).clamp(min=0)  # those far behind the end do not matter
        return F.conv1d(x.index_select(2, places), self.weight, self.bias, dilation=self.dilation)


class TimeDelay(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, kernel: int = 1, dilation: int = 1) -> None:
        super().__init__()
        self.conv = ReflectedConv(in_channels, out_channels, kernel, dilation)

    def forward(self, x: Tensor, extent: Extent | None = None) -> Tensor:
        y: Tensor = self.conv(x, extent)
        return y.relu()


class Res2Net(nn.Module):
    """Split the channels into `scale` parts. The first passes; each later one is convolved, from the third on after
    adding the output of the part before."""

    def __init__(self, channels: int, scale: int, kernel: int, dilation: int) -> None:
        super().__init__()
        part = channels // scale
        self.scale = scale
        self.blocks = nn.ModuleList(TimeDelay(part, part, kernel, dilation) for _ in range(scale - 1))

    def forward(self, x: Tensor, extent: Extent | None = None) -> Tensor:
        first, *parts = x.chunk(self.scale, dim=1)
        outputs = [first]
        for i, (block, part) in enumerate(zip(self.blocks, parts, strict=True)):
            outputs.append(block(part if i == 0 else part + outputs[-1], extent))
        return torch.cat(outputs, dim=1)


class SqueezeExcitation(nn.Module):
    def __init__(self, channels: int, squeezed_channels: int) -> None:
        super().__init__()
        self.conv1 = ReflectedConv(channels, squeezed_channels)
        self.conv2 = ReflectedConv(squeezed_channels, channels)

    def forward(self, x: Tensor, extent: Extent | None = None) -> Tensor:
        if extent is None:
            mean = x.mean(dim=2, keepdim=True)
        else:
            mean = ((x * extent.inside).sum(dim=2, keepdim=True, dtype=torch.float32) / extent.length).to(x.dtype)
        gate: Tensor = self.conv2(self.conv1(mean).relu())
        return x * gate.sigmoid()


class SqueezeExcitationRes2Net(nn.Module):
    def __init__(
        self, config: SpeakerEncoderConfig, in_channels: int, channels: int, kernel: int, dilation: int
    ) -> None:
        super().__init__()
        self.tdnn1 = TimeDelay(in_channels, channels)
        self.res2net_block = Res2Net(channels, config.res2net_scale, kernel, dilation)
        self.tdnn2 = TimeDelay(channels, channels)
        self.se_block = SqueezeExcitation(channels, config.se_channels)

    def forward(self, x: Tensor, extent: Extent | None = None) -> Tensor:
        y: Tensor = self.se_block(self.tdnn2(self.res2net_block(self.tdnn1(x), extent)), extent)
        return y + x


class AttentivePooling(nn.Module):
    """Mean and standard deviation over time, weighted by attention that also sees the unweighted ones."""

    def __init__(self, channels: int, attention_channels: int) -> None:
        super().__init__()
        self.tdnn = TimeDelay(channels * 3, attention_channels)
        self.conv = ReflectedConv(attention_channels, channels)

    def forward(self, x: Tensor, extent: Extent | None = None) -> Tensor:
        if extent is None:
            uniform = torch.full_like(x[:, :1], 1.0) / x.shape[2]
        else:
            uniform = (extent.inside / extent.length).to(x.dtype).expand_as(x[:, :1])
        context = [statistic[..., None].expand_as(x) for statistic in _statistics(x, uniform)]
        scores = self.conv(self.tdnn(torch.cat([x, *context], dim=1)).tanh())
        if extent is not None:
            scores = scores.masked_fill(~extent.inside, -torch.inf)
        return torch.cat(_statistics(x, scores.softmax(dim=2)), dim=1)[..., None]


def _statistics(x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    mean = (weights * x).sum(dim=2)
    variance = (weights * (x - mean[..., None]).square()).sum(dim=2)
    return mean, variance.clamp(min=VARIANCE_FLOOR).sqrt()


class SpeakerEncoder(nn.Module):
    def __init__(self, config: SpeakerEncoderConfig) -> None:
        super().__init__()
        channels, kernels, dilations = config.channels, config.kernel_sizes, config.dilations
        self.blocks = nn.ModuleList([TimeDelay(config.mel_dim, channels[0], kernels[0], dilations[0])])
        for i in range(1, len(channels) - 1):
            self.blocks.append(SqueezeExcitationRes2Net(config, channels[i - 1], channels[i], kernels[i], dilations[i]))
        self.mfa = TimeDelay(channels[-1], channels[-1], kernels[-1], dilations[-1])
        self.asp = AttentivePooling(channels[-1], config.attention_channels)
        self.fc = ReflectedConv(channels[-1] * 2, config.enc_dim)
        # Reflect padding must be shorter than the signal, so the widest kernel sets the minimum number of frames.
        self.min_frames = 1 + max(d * (k - 1) - d * (k - 1) // 2 for k, d in zip(kernels, dilations, strict=True))

    def forward(self, mel: Tensor, length: Tensor | None = None) -> Tensor:
        """mel [rows, frames, mels] -> [rows, enc_dim]. `length` [1]: only so many frames are the recording's."""
        x = mel.transpose(1, 2)
        extent = None if length is None else Extent.of(x, length)
        outputs = []
        for block in self.blocks:
            x = block(x, extent)
            outputs.append(x)
        y: Tensor = self.fc(self.asp(self.mfa(torch.cat(outputs[1:], dim=1), extent), extent))
        return y[..., 0]
