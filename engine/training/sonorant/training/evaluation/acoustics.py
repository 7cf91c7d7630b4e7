"""Measures of a voice that need no trained model: pitch, and the mean shape of the spectrum."""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from sonorant.engine.types import Int16Array

FloatArray = npt.NDArray[np.floating[Any]]

SAMPLE_RATE_HZ = 16000
FRAME, HOP = 640, 160  # 40 ms, 10 ms
PITCH_HZ = (65.0, 350.0)
LAGS_PER_SAMPLE = 4
VOICED = 0.5  # normalized autocorrelation
NEARLY_EQUAL = 0.88  # of the highest peak
LOUD = 0.05  # of the loudest frames' power
FLOOR = 1e-3  # of a band, as a share of the mean power
_BANDS_PER_OCTAVE = 12
_BANDS_HZ = (200.0, 7000.0)
_SHIFTED_FROM_HZ = 500.0  # below it, single harmonics stand out and the envelope follows the pitch
_CEPSTRA = 14


def median_pitch_hz(samples: Int16Array) -> float:
    """Median pitch of the voiced frames; NaN if there are none."""
    pitches = _pitches_hz(samples)
    return float(np.median(pitches)) if len(pitches) else float("nan")


def pitch_deviation(samples: Int16Array) -> float:
    """Standard deviation of the pitch in semitones, without frames that are more than half an octave off, most of them
    errors; NaN if nothing is voiced."""
    pitches = _pitches_hz(samples)
    if len(pitches) == 0:
        return float("nan")
    semitones = 12 * np.log2(pitches / np.median(pitches))
    return float(semitones[np.abs(semitones) <= 6].std())


def _pitches_hz(samples: Int16Array) -> FloatArray:
    """Pitch of every voiced frame."""
    correlation = autocorrelation(_loud_frames(samples))
    window = autocorrelation(np.hanning(FRAME)[None])
    first, last = (round(SAMPLE_RATE_HZ * LAGS_PER_SAMPLE / hz) for hz in reversed(PITCH_HZ))
    normalized = (correlation / correlation[:, :1] / (window / window[:, :1]))[:, first:last]
    best = normalized.max(1)
    # Take the shortest of the lags with nearly equal peaks: the others are its multiples.
    inner = normalized[:, 1:-1]
    peaks = (inner >= normalized[:, :-2]) & (inner >= normalized[:, 2:]) & (inner > NEARLY_EQUAL * best[:, None])
    lags = first + 1 + peaks.argmax(1)
    voiced = (best > VOICED) & peaks.any(1)
    pitches: FloatArray = SAMPLE_RATE_HZ * LAGS_PER_SAMPLE / lags[voiced]
    return pitches


def envelope(samples: Int16Array) -> FloatArray:
    """Mean log spectrum of the loud frames, in bands of equal width on a logarithmic axis; smoothed, without level."""
    power = np.abs(np.fft.rfft(_loud_frames(samples), 2 * FRAME)) ** 2
    levels = np.log(power @ bands() + FLOOR * power.mean()).mean(0)
    cepstra = cosines() @ (levels - levels.mean())
    smooth: FloatArray = cosines().T @ cepstra
    return smooth


def envelope_distance(a: FloatArray, b: FloatArray) -> float:
    """Root mean square difference of two envelopes, in dB."""
    return float(10 / np.log(10) * np.sqrt(np.square(a - b).mean()))


def formant_shift(a: FloatArray, b: FloatArray) -> float:
    """By how many semitones, -6 to 6, the spectrum of `b` lies above that of `a`."""
    first = round(np.log2(_SHIFTED_FROM_HZ / _BANDS_HZ[0]) * _BANDS_PER_OCTAVE)
    fine = np.arange(first, len(a) - 1, 0.25)
    shifts = np.arange(-6.0, 6.01, 0.25)
    places = np.arange(len(a))

    def likeness(shift: float) -> float:
        here, there = np.interp(fine, places, a), np.interp(fine + shift, places, b)
        both = (fine + shift >= first) & (fine + shift <= len(a) - 1)
        return float(np.corrcoef(here[both], there[both])[0, 1])

    return float(shifts[np.argmax([likeness(shift) for shift in shifts])])


def autocorrelation(frames: FloatArray) -> FloatArray:
    """Autocorrelation [frames, lags], with `LAGS_PER_SAMPLE` per sample and lags up to a frame.

    With whole samples only, a period that ends between two samples may look weaker than twice that period.
    """
    power = np.abs(np.fft.rfft(frames, 2 * FRAME)) ** 2
    correlation: FloatArray = np.fft.irfft(power, 2 * FRAME * LAGS_PER_SAMPLE)[:, : FRAME * LAGS_PER_SAMPLE]
    return correlation


def _loud_frames(samples: Int16Array) -> FloatArray:
    padded = np.pad(samples.astype(np.float64), (0, max(0, FRAME - len(samples))))
    frames = np.lib.stride_tricks.sliding_window_view(padded, FRAME)[::HOP] * np.hanning(FRAME)
    power = np.square(frames).mean(1)
    loud: FloatArray = frames[power > LOUD * np.quantile(power, 0.95)]
    return loud


@cache
def bands() -> FloatArray:
    """Triangular filters [bins, bands], a semitone apart and at least 120 Hz wide."""
    low, high = _BANDS_HZ
    number = int(np.log2(high / low) * _BANDS_PER_OCTAVE)
    centers = low * 2 ** (np.arange(number) / _BANDS_PER_OCTAVE)
    widths = np.maximum(centers * (2 ** (1.5 / _BANDS_PER_OCTAVE) - 1), 120.0)
    bins = np.fft.rfftfreq(2 * FRAME, 1 / SAMPLE_RATE_HZ)[:, None]
    triangles = np.maximum(0.0, 1 - np.abs(bins - centers) / widths)
    normalized: FloatArray = triangles / triangles.sum(0)
    return normalized


@cache
def cosines() -> FloatArray:
    """Orthonormal cosines of the first cepstra [cepstra, bands], without the one of the level."""
    number = bands().shape[1]
    places = (np.arange(number) + 0.5) / number
    waves: FloatArray = np.cos(np.pi * np.arange(1, _CEPSTRA + 1)[:, None] * places) * np.sqrt(2 / number)
    return waves
