"""Makes samples louder or quieter. Pure, and sample by sample, so that it does not matter how a stream is cut."""

import numpy as np

from sonorant.service.audio.pcm import Samples, to_int16

GAINS_DB = (-96.0, 16.0)
_KNEE = 0.8 * 32768  # about -2 dB of full scale


def amplify(samples: Samples, gain_db: float) -> Samples:
    """Apply a gain. Peaks above the knee are compressed, so that nothing clips."""
    values = samples.astype(np.float64) * 10 ** (gain_db / 20)
    if gain_db > 0:
        room = 32767 - _KNEE
        over = np.maximum(np.abs(values) - _KNEE, 0.0)
        bent = np.copysign(_KNEE + room * np.tanh(over / room), values)
        values = np.where(over > 0, bent, values)
    return to_int16(values)
