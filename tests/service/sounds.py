"""Sounds to put through the audio stages, and ways to compare what comes out."""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

Samples = npt.NDArray[np.int16]


class Stage(Protocol):
    def push(self, samples: Samples) -> Samples: ...
    def finish(self) -> Samples: ...


def tone(frequency_hz: float, num_samples: int, rate_hz: int = 24_000, peak: float = 20_000) -> Samples:
    return np.rint(peak * np.sin(2 * np.pi * frequency_hz * np.arange(num_samples) / rate_hz)).astype(np.int16)


def voiced(pitch_hz: float, num_samples: int, rate_hz: int = 24_000) -> Samples:
    """A vowel of sorts: harmonics that get weaker, under a slow swell."""
    time_s = np.arange(num_samples) / rate_hz
    harmonics = sum(np.sin(2 * np.pi * pitch_hz * k * time_s + k * k) / k for k in range(1, 20))
    return np.rint(6000 * harmonics * (0.6 + 0.4 * np.sin(2 * np.pi * 3 * time_s))).astype(np.int16)


def noise(num_samples: int, seed: int = 0, peak: int = 32_767) -> Samples:
    return np.random.default_rng(seed).integers(-peak, peak + 1, num_samples).astype(np.int16)


def through(stage: Stage, samples: Samples, cuts: Sequence[int] = ()) -> Samples:
    """Everything a stage makes of samples that come in pieces."""
    pieces = np.split(samples, sorted(min(cut, len(samples)) for cut in cuts))
    return np.concatenate([*(stage.push(piece) for piece in pieces), stage.finish()])


def cuts(most: int = 6000) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, most), max_size=8)


def snr_db(reference: npt.ArrayLike, other: npt.ArrayLike) -> float:
    reference, other = np.asarray(reference, np.float64), np.asarray(other, np.float64)
    return float(10 * np.log10((reference**2).sum() / max(((reference - other) ** 2).sum(), 1e-9)))


def level_db(samples: npt.ArrayLike) -> float:
    """Of full scale, for a sine of full scale 0."""
    return float(20 * np.log10(max(np.sqrt(2 * np.mean(np.square(np.asarray(samples, np.float64)))), 1e-9) / 32_768))


def main_frequency_hz(samples: Samples, rate_hz: int = 24_000) -> float:
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(spectrum.argmax() * rate_hz / len(samples))


def same_however_cut(make: Callable[[], Stage], samples: Samples, where: Sequence[int]) -> None:
    """And a stage that has finished begins anew."""
    stage = make()
    assert np.array_equal(through(stage, samples, where), through(make(), samples))
    assert np.array_equal(through(stage, samples), through(make(), samples))
