"""Spectra of samples: stage 1 predicts them, stage 2 compares them."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SAMPLE_RATE_HZ = 24000
TARGET_MELS, TARGET_MAX_HZ = 100, 12000.0
TARGET_LOW_BINS = 128  # of the fine spectrum, 0 to 1.5 kHz, which show the pitch
COMPARED = ((2048, 128), (1024, 96), (512, 64), (256, 32), (128, 16), (64, 8))  # (window, mels)
FINE_WINDOW, FINE_FLOOR = 2048, 1e-2


class SpectralTargets(nn.Module):
    """Log10 mels every 20 ms and the low part of a finer spectrum every 40 ms."""

    window: Tensor
    fine_window: Tensor
    filters: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(1024))
        self.register_buffer("fine_window", torch.hann_window(FINE_WINDOW))
        self.register_buffer("filters", mel_filters(1024, TARGET_MELS, TARGET_MAX_HZ))

    @torch.no_grad()
    def forward(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        """samples [crops, frames * 1920] -> [crops, frames * 4, mels], [crops, frames * 2, low bins]."""
        mels = _magnitudes(F.pad(samples, (272, 272)), self.window, 480) @ self.filters
        fine = _magnitudes(F.pad(samples, (544, 544)), self.fine_window, 960)[..., :TARGET_LOW_BINS]
        return mels.clamp(min=1e-3).log10(), fine.clamp(min=FINE_FLOOR).log10()


class SpectralDistance(nn.Module):
    """Two distances of sounds [crops, n]: the mean absolute difference of log10 mels, summed over window sizes, and
    that of the low part of the fine spectrum. The lines of the latter show the pitch, which mels blur."""

    def __init__(self) -> None:
        super().__init__()
        for size, num_mels in COMPARED:
            self.register_buffer(f"window_{size}", torch.hann_window(size))
            self.register_buffer(f"filters_{size}", mel_filters(size, num_mels, SAMPLE_RATE_HZ / 2))

    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        mel = sum(((self._mels(a, size) - self._mels(b, size)).abs().mean() for size, _ in COMPARED), a.new_zeros(()))
        return mel, (self._low(a) - self._low(b)).abs().mean()

    def _mels(self, samples: Tensor, size: int) -> Tensor:
        return (self._spectrum(samples, size) @ self.get_buffer(f"filters_{size}")).clamp(min=1e-4).log10()

    def _low(self, samples: Tensor) -> Tensor:
        return self._spectrum(samples, FINE_WINDOW)[..., :TARGET_LOW_BINS].clamp(min=FINE_FLOOR).log10()

    def _spectrum(self, samples: Tensor, size: int) -> Tensor:
        padded = F.pad(samples[:, None], (size // 2, size // 2), mode="reflect")[:, 0]
        return _magnitudes(padded, self.get_buffer(f"window_{size}"), size // 4)


def mel_filters(window_size: int, num_mels: int, max_hz: float) -> Tensor:
    """Triangles on the HTK mel scale, [bins, mels]."""
    top = 2595 * math.log10(1 + max_hz / 700)
    edges = 700 * (10 ** (torch.linspace(0, top, num_mels + 2, dtype=torch.float64) / 2595) - 1)
    bins = torch.linspace(0, SAMPLE_RATE_HZ / 2, window_size // 2 + 1, dtype=torch.float64)[:, None]
    rising = (bins - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - bins) / (edges[2:] - edges[1:-1])
    return torch.minimum(rising, falling).clamp(min=0).float()


def _magnitudes(samples: Tensor, window: Tensor, hop: int) -> Tensor:
    spectrum = torch.stft(samples, len(window), hop, window=window, center=False, return_complex=True)
    return spectrum.abs().transpose(1, 2)
