"""Chooses the codec's number format where the settings leave it open: the fastest that agrees with float32. Pure."""

import math
from collections.abc import Callable

import numpy as np

from sonorant.engine.config import CodecDtypeName
from sonorant.engine.types import Float32Array

FASTEST_FIRST: tuple[CodecDtypeName, ...] = ("float16", "tf32")
MIN_AGREEMENT_DB = 40.0  # float16 and tf32 reach 54 and 63 dB with the built-in voice; 36 can be heard in quiet rooms


def agreement_db(samples: Float32Array, reference: Float32Array) -> float:
    """Signal-to-noise ratio of `samples`, taking `reference` as right; -inf if a value in either is not finite."""
    if not (np.isfinite(samples).all() and np.isfinite(reference).all()):
        return -math.inf
    signal = float(np.square(reference, dtype=np.float64).sum())
    noise = float(np.square(samples - reference, dtype=np.float64).sum())
    if noise == 0.0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal else -math.inf


def choose_format(measure: Callable[[CodecDtypeName], float]) -> tuple[CodecDtypeName, str]:
    """Return a format and the reasons for it; `measure` gives the agreement of a format with float32, in dB."""
    reasons = []
    for name in FASTEST_FIRST:
        agreement = measure(name)
        if agreement >= MIN_AGREEMENT_DB:
            reasons.append(f"{name} agrees with float32 to {agreement:.0f} dB")
            return name, "; ".join(reasons)
        what = f"agrees with float32 to only {agreement:.0f} dB" if math.isfinite(agreement) else "overflows"
        reasons.append(f"{name} {what}")
    return "float32", "; ".join(reasons)
