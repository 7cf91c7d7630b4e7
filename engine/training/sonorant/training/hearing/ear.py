"""The judge's measures, `evaluation.acoustics`, of many sounds at once and on any device.

Sounds have 24 kHz here and 16 kHz there. Frames of 40 ms have bins of the same width at both rates, so it is enough to
leave out those above 8 kHz.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sonorant.training.alignment import SAMPLE_RATE_HZ
from sonorant.training.evaluation import acoustics

FRAME = acoustics.FRAME * SAMPLE_RATE_HZ // acoustics.SAMPLE_RATE_HZ
HOP = acoustics.HOP * SAMPLE_RATE_HZ // acoustics.SAMPLE_RATE_HZ
NUM_BINS = acoustics.FRAME + 1
LAGS_HZ = acoustics.SAMPLE_RATE_HZ * acoustics.LAGS_PER_SAMPLE
AT_ONCE = 32  # sounds: of 5 s each, they take 2 GB
UNVOICED_SEMITONES = 24.0  # how far a sound without pitch is from any


@dataclass(frozen=True, slots=True)
class Heard:
    envelope: Tensor  # [sounds, bands]
    semitones: Tensor  # [sounds] median pitch above 1 Hz; NaN where nothing is voiced

    @classmethod
    def joined(cls, parts: Sequence["Heard"]) -> "Heard":
        return cls(torch.cat([p.envelope for p in parts]), torch.cat([p.semitones for p in parts]))

    def __getitem__(self, sounds: Tensor | slice) -> "Heard":
        return Heard(self.envelope[sounds], self.semitones[sounds])

    def db_from(self, other: "Heard") -> Tensor:
        return 10 / math.log(10) * (self.envelope - other.envelope).square().mean(-1).sqrt()

    def semitones_from(self, other: "Heard") -> Tensor:
        return (self.semitones - other.semitones).abs().nan_to_num(UNVOICED_SEMITONES)


class Ear:
    def __init__(self, device: torch.device) -> None:
        def tensor(values: acoustics.FloatArray) -> Tensor:
            return torch.tensor(values, dtype=torch.float32, device=device)

        self._window = tensor(np.hanning(FRAME))
        self._bands, self._cosines = tensor(acoustics.bands()), tensor(acoustics.cosines())
        self._first_lag, self._last_lag = (round(LAGS_HZ / hz) for hz in reversed(acoustics.PITCH_HZ))
        [window] = acoustics.autocorrelation(np.hanning(acoustics.FRAME)[None])
        self._windows_own = tensor((window / window[0])[self._first_lag : self._last_lag])

    @torch.no_grad()
    def __call__(self, samples: Tensor, lengths: Tensor) -> Heard:
        """Hear the first `lengths` [sounds] of the samples [sounds, n], at 24 kHz."""
        batches = zip(torch.split(samples, AT_ONCE), torch.split(lengths, AT_ONCE), strict=True)
        return Heard.joined([self._hear(*batch) for batch in batches])

    def _hear(self, samples: Tensor, lengths: Tensor) -> Heard:
        frames = samples.unfold(1, FRAME, HOP)
        power = torch.fft.rfft(frames * self._window, 2 * FRAME)[..., :NUM_BINS].abs().square()
        level = power.sum(-1)  # [sounds, frames]
        starts = torch.arange(frames.shape[1], device=samples.device) * HOP
        inside = starts + FRAME <= lengths.clamp(min=FRAME)[:, None]
        high = level.masked_fill(~inside, torch.nan).nanquantile(0.95, 1, keepdim=True)
        loud = inside & (level > acoustics.LOUD * high)
        return Heard(self._envelope(power, loud), self._semitones(power, loud))

    def _envelope(self, power: Tensor, loud: Tensor) -> Tensor:
        share = (loud / loud.sum(1, keepdim=True).clamp(min=1))[..., None]  # [sounds, frames, 1]
        mean = (power.mean(-1, keepdim=True) * share).sum(1, keepdim=True)
        levels = ((power @ self._bands + acoustics.FLOOR * mean).clamp(min=1e-12).log() * share).sum(1)
        return (levels - levels.mean(1, keepdim=True)) @ self._cosines.T @ self._cosines

    def _semitones(self, power: Tensor, loud: Tensor) -> Tensor:
        correlation = torch.fft.irfft(power, 2 * acoustics.FRAME * acoustics.LAGS_PER_SAMPLE)
        lags = correlation[..., self._first_lag : self._last_lag] / self._windows_own
        normalized = lags / correlation[..., :1].clamp(min=1e-20)
        best = normalized.amax(-1)
        inner = normalized[..., 1:-1]
        peaks = (inner >= normalized[..., :-2]) & (inner >= normalized[..., 2:])
        peaks &= inner > acoustics.NEARLY_EQUAL * best[..., None]
        lag = self._first_lag + 1 + peaks.int().argmax(-1)  # the first one
        voiced = loud & (best > acoustics.VOICED) & peaks.any(-1)
        semitones = 12 * torch.log2(LAGS_HZ / lag.float())
        return semitones.masked_fill(~voiced, torch.nan).nanquantile(0.5, 1)
