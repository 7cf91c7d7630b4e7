"""ITU-T G.711: 16-bit samples to 8-bit mu-law and A-law, one table look-up each. Pure.

The quantizer is that of the common reference code in C, as in Python's former `audioop`: mu-law uses the upper 14 bits
of a sample, A-law the upper 13.
"""

import numpy as np
import numpy.typing as npt

from sonorant.service.audio.pcm import Samples

Codes = npt.NDArray[np.uint8]


def mulaw(samples: Samples) -> bytes:
    return _MULAW[samples.view(np.uint16)].tobytes()


def alaw(samples: Samples) -> bytes:
    return _ALAW[samples.view(np.uint16)].tobytes()


def _mulaw_table() -> Codes:
    samples = np.arange(65536, dtype=np.uint16).view(np.int16).astype(np.int64) >> 2
    biased = np.minimum(np.abs(samples), 8159) + 33
    exponent = np.floor(np.log2(biased)).astype(np.int64) - 5
    code = np.minimum(exponent << 4 | biased >> exponent + 1 & 0xF, 0x7F)
    codes: Codes = np.where(samples < 0, code ^ 0x7F, code ^ 0xFF).astype(np.uint8)
    return codes


def _alaw_table() -> Codes:
    samples = np.arange(65536, dtype=np.uint16).view(np.int16).astype(np.int64) >> 3
    magnitude = np.where(samples < 0, ~samples, samples)
    exponent = np.maximum(np.floor(np.log2(np.maximum(magnitude, 1))).astype(np.int64) - 4, 0)
    mantissa = magnitude >> np.maximum(exponent, 1) & 0xF
    code = exponent << 4 | mantissa
    codes: Codes = np.where(samples < 0, code ^ 0x55, code ^ 0xD5).astype(np.uint8)
    return codes


_MULAW = _mulaw_table()
_ALAW = _alaw_table()
