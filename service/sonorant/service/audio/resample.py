"""Sample-rate conversion of a stream: a linear-phase polyphase filter with 2 ms of memory to each side. Pure.

The filter's delay is compensated: output sample k is the sound at k / to_hz, so the output stays in time with the
input. The last 2 ms come with the next piece or with `finish`. The length is exact: ceil(n * to_hz / from_hz).

All sums are exact in any order: samples and taps are integers, and doubles hold every partial sum. So the output does
not depend on how the input is cut, bit for bit, although a BLAS does the work.
"""

from functools import lru_cache
from math import gcd

import numpy as np
import numpy.typing as npt

from sonorant.service.audio.pcm import EMPTY, Samples, to_int16

HALF_WIDTH_S = 0.002
STOPBAND_DB = 85
STOPBAND_MARGIN_HZ = 500  # the stop band begins this far above the lower Nyquist frequency
_TAP_SCALE = 1 << 22  # |sample| < 2^15, the taps of one output sum to 2^22 (to 2^23 by magnitude): far below 2^53
_INPUTS_PER_BLOCK = 128  # or one group, if that has more; much of a larger matrix would be zeros
_MAX_GROUPS_PER_BLOCK = 32
_BLOCKS_PER_PRODUCT = 16  # small enough that a BLAS uses no helper threads, which would disturb the event loop

Doubles = npt.NDArray[np.float64]


class Resampler:
    """Resamples a stream. A group is `up` outputs from `down` inputs; a row of a product is a block of groups."""

    def __init__(self, from_hz: int, to_hz: int) -> None:
        common = gcd(from_hz, to_hz)
        self._up, self._down = to_hz // common, from_hz // common
        self._groups = _groups_per_block(self._down)
        self._half, self._matrix = _block_filter(from_hz, to_hz)  # [inputs of a block, outputs of a block]
        self._reset()

    def _reset(self) -> None:
        self._held = np.zeros(self._half)  # input from half a filter before the first group that is not finished
        self._num_ahead = 0  # outputs of that group already returned
        self._num_in = self._num_out = 0

    def push(self, samples: Samples) -> Samples:
        """Add samples and return all output that later samples cannot change."""
        self._num_in += len(samples)
        self._held = np.concatenate([self._held, samples])
        return self._filter(-(-(len(self._held) - 2 * self._half) * self._up // self._down))

    def finish(self) -> Samples:
        """Return the rest. What is pushed afterwards is another piece of sound."""
        num_left = -(-self._num_in * self._up // self._down) - self._num_out
        rest = self._filter(self._num_ahead + num_left)
        self._reset()
        return rest

    def _filter(self, until: int) -> Samples:
        """Return the outputs up to `until`, counted from the beginning of the group. Missing input is silence."""
        if until <= self._num_ahead:
            return EMPTY
        num_blocks = -(-until // (self._groups * self._up))
        span, hop = self._matrix.shape[0], self._groups * self._down
        padded = np.concatenate([self._held, np.zeros(max(0, (num_blocks - 1) * hop + span - len(self._held)))])
        blocks = np.lib.stride_tricks.sliding_window_view(padded, span)[::hop][:num_blocks]
        parts = [blocks[i : i + _BLOCKS_PER_PRODUCT] @ self._matrix for i in range(0, num_blocks, _BLOCKS_PER_PRODUCT)]
        out = np.concatenate(parts).reshape(-1)[self._num_ahead : until]
        num_groups, self._num_ahead = divmod(until, self._up)
        self._held = self._held[num_groups * self._down :]
        self._num_out += len(out)
        return to_int16(out / _TAP_SCALE)


def _groups_per_block(down: int) -> int:
    return min(_MAX_GROUPS_PER_BLOCK, max(1, _INPUTS_PER_BLOCK // down))


@lru_cache
def _block_filter(from_hz: int, to_hz: int) -> tuple[int, Doubles]:
    """Return half the filter's width in input samples, and the matrix from a block of inputs to its outputs."""
    common = gcd(from_hz, to_hz)
    up, down = to_hz // common, from_hz // common
    half = round(from_hz * HALF_WIDTH_S)
    outputs = np.arange(_groups_per_block(down) * up)
    span = int(outputs[-1]) * down // up + 2 * half + 1
    # The time from each input to each output, in input samples; the first output is `half` after the first input.
    lag = outputs[np.newaxis, :] * (down / up) + half - np.arange(span)[:, np.newaxis]  # [span, outputs]
    # Kaiser's formulas: the window for the attenuation, and the width of the transition that it leaves.
    beta = 0.1102 * (STOPBAND_DB - 8.7)
    transition_hz = (STOPBAND_DB - 8) / (2.285 * 2 * half) * from_hz / (2 * np.pi)
    cutoff_hz = min(from_hz, to_hz) / 2 + STOPBAND_MARGIN_HZ - transition_hz / 2
    inside = np.clip(1 - (lag / half) ** 2, 0, None)
    window = np.where(np.abs(lag) <= half, np.i0(beta * np.sqrt(inside)), 0.0)
    ideal = window * np.sinc(2 * cutoff_hz / from_hz * lag)
    taps = np.rint(ideal / ideal.sum(axis=0) * _TAP_SCALE)
    # Rounding must not change the level of any phase: the largest tap is corrected by the difference.
    taps[np.abs(taps).argmax(axis=0), outputs] += _TAP_SCALE - taps.sum(axis=0)
    taps.flags.writeable = False
    return half, taps
