"""A made sound whose pitch and formants are known."""

from collections.abc import Sequence

import numpy as np

from sonorant.engine.types import Int16Array

FORMANTS_HZ = (700.0, 1200.0, 2600.0)


def vowel(
    pitch_hz: float, ratio: float = 1.0, formants_hz: Sequence[float] = FORMANTS_HZ, rate: int = 16000
) -> Int16Array:
    """Half a second of harmonics under resonances at `ratio` times the formants."""
    seconds = np.arange(rate // 2) / rate
    harmonics = np.arange(pitch_hz, 7800, pitch_hz)
    gains = sum(1 / (1 + ((harmonics - ratio * f) / (0.08 * f)) ** 2) for f in formants_hz) + 0.001
    wave = (gains[:, None] * np.cos(2 * np.pi * harmonics[:, None] * seconds + harmonics[:, None] ** 2)).sum(0)
    samples: Int16Array = (8000 * wave / np.abs(wave).max()).astype(np.int16)
    return samples
