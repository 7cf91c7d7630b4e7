"""Discriminators that judge waveforms by periods (2 to 11 samples) and by short spectra. Only used in training."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sonorant.training.codec.spectra import SAMPLE_RATE_HZ, TARGET_MAX_HZ

PERIODS = (2, 3, 5, 7, 11)
SPECTRAL_WINDOWS = (2048, 1024, 512)
SLOPE = 0.1

Judgement = tuple[Tensor, list[Tensor]]  # score map, features of each layer


class Discriminators(nn.Module):
    def __init__(self, period_channels: tuple[int, ...], spectral_channels: int) -> None:
        super().__init__()
        self.judges = nn.ModuleList(
            [
                *(_ByPeriod(period, period_channels) for period in PERIODS),
                *(_BySpectrum(size, spectral_channels) for size in SPECTRAL_WINDOWS),
            ]
        )

    def forward(self, samples: Tensor) -> list[Judgement]:  # [crops, n]
        return [judge(samples) for judge in self.judges]


class _ByPeriod(nn.Module):
    def __init__(self, period: int, channels: tuple[int, ...]) -> None:
        super().__init__()
        self.period = period
        sizes = (1, *channels)
        self.convs = nn.ModuleList(
            nn.Conv2d(a, b, (5, 1), (3, 1), (2, 0)) for a, b in zip(sizes, channels, strict=False)
        )
        self.convs.append(nn.Conv2d(channels[-1], channels[-1], (5, 1), padding=(2, 0)))
        self.score = nn.Conv2d(channels[-1], 1, (3, 1), padding=(1, 0))

    def forward(self, samples: Tensor) -> Judgement:
        padded = F.pad(samples, (0, -samples.shape[-1] % self.period))
        return _judge(padded.view(len(samples), 1, -1, self.period), self.convs, self.score)


class _BySpectrum(nn.Module):
    window: Tensor

    def __init__(self, size: int, channels: int) -> None:
        super().__init__()
        self.num_bins = int(size * (TARGET_MAX_HZ + 200) / SAMPLE_RATE_HZ) + 2  # the teacher has nothing above
        self.register_buffer("window", torch.hann_window(size), persistent=False)
        narrow = [nn.Conv2d(channels, channels, (3, 9), (1, 2), (1, 4)) for _ in range(3)]
        last = nn.Conv2d(channels, channels, 3, padding=1)
        self.convs = nn.ModuleList([nn.Conv2d(2, channels, (3, 9), padding=(1, 4)), *narrow, last])
        self.score = nn.Conv2d(channels, 1, 3, padding=1)

    def forward(self, samples: Tensor) -> Judgement:
        size = len(self.window)
        with torch.autocast(samples.device.type, enabled=False):
            spectrum = torch.stft(samples.float(), size, size // 4, window=self.window, return_complex=True)
            parts = torch.view_as_real(spectrum[:, : self.num_bins]).permute(0, 3, 2, 1) * (8.0 / math.sqrt(size))
        return _judge(parts.contiguous(), self.convs, self.score)


def _judge(x: Tensor, convs: nn.ModuleList, score: nn.Module) -> Judgement:
    features = []
    for conv in convs:
        x = F.leaky_relu(conv(x), SLOPE)
        features.append(x)
    return score(x), features
