"""Converts the teacher's samples for the codec: to 24 kHz, a little below full scale."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

PEAK = 0.9  # of full scale: the teacher's peak, with room for the decoder to overshoot
_SINC_ZEROS = 24
_ROLL_OFF = 0.985


def resample_16_to_24_khz(samples: Tensor) -> Tensor:
    """Resample with a windowed sinc, [sentences, n] -> [sentences, n * 3 / 2]."""
    up, down = 3, 2
    width = math.ceil(_SINC_ZEROS * down / (down * _ROLL_OFF))
    phases = -torch.arange(up, dtype=torch.float64)[:, None] / up
    times = (phases + torch.arange(-width, width + down, dtype=torch.float64) / down) * (down * _ROLL_OFF)
    times = times.clamp(-_SINC_ZEROS, _SINC_ZEROS)
    window = torch.cos(times * math.pi / _SINC_ZEROS / 2) ** 2
    kernel = (torch.sinc(times) * window * _ROLL_OFF).float().to(samples.device)
    padded = F.pad(samples[:, None], (width, width + down))
    return F.conv1d(padded, kernel[:, None], stride=down).transpose(1, 2).flatten(1)[:, : samples.shape[1] * up // down]
