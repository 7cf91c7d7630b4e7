"""The type of samples: one channel of 16 bits. Pure."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Samples: TypeAlias = npt.NDArray[np.int16]

EMPTY: Samples = np.zeros(0, dtype=np.int16)


def to_int16(values: npt.NDArray[np.float64]) -> Samples:
    """Round half up, and clip what is out of range."""
    return np.clip(np.floor(values + 0.5), -32768, 32767).astype(np.int16)
