"""Whether a stream still speaks: for how long it has been silent, or saying the same over and over. Pure.

Good speech comes nowhere near these limits (docs/decisions.md has the counts), and the engine's own, which end a
stream, are further off. Here there is still time: what has not been sent can be made again.
"""

import numpy as np
import numpy.typing as npt

from sonorant.engine import Int16Array

SILENT_PEAK = 66  # of 32768, which is -54 dB: below it nobody hears speech
MAX_PERIOD = 48  # frames; a longer loop is left to the engine's limit of all frames
# Frames in a row from which on it is waited to see whether there are more of them, ...
SUSPECT_SILENT, SUSPECT_REPEATED = 8, 24
# ... and so many that no speech has them.
BAD_SILENT, BAD_REPEATED = 25, 48

_BLOCK = 16  # frames looked at together
# [frame, period - 1]: where the frame a period before stands, among MAX_PERIOD frames and then these.
_BEFORE = np.arange(MAX_PERIOD, MAX_PERIOD + _BLOCK)[:, None] - np.arange(1, MAX_PERIOD + 1)


class Signs:
    """Of one stream, told of all its frames in order."""

    def __init__(self) -> None:
        self._num_silent = 0  # frames in a row, the last ones
        self._past = np.full(MAX_PERIOD, -1, np.int16)  # first codes; they say what is spoken, the others how it sounds
        self._repeated = np.zeros(MAX_PERIOD, np.int64)  # [period - 1]: so many frames were as the one a period before

    def push(self, codes: Int16Array, samples: Int16Array | None = None) -> None:
        """[frames, codebooks] and [frames * frame_samples]; without samples, of frames that were heard before."""
        for start in range(0, len(codes), _BLOCK):
            self._compare(codes[start : start + _BLOCK, 0])
        if samples is None or not len(codes):
            self._num_silent = 0
            return
        frames = samples.reshape(len(codes), -1)
        is_loud = (frames.max(1) > SILENT_PEAK) | (frames.min(1) < -SILENT_PEAK)
        self._num_silent = _tail(~is_loud[:, None], np.array([self._num_silent])).item()

    def _compare(self, firsts: Int16Array) -> None:  # [frames]
        known = np.concatenate([self._past, firsts])
        self._repeated = _tail(known[_BEFORE[: len(firsts)]] == firsts[:, None], self._repeated)
        self._past = known[-MAX_PERIOD:]

    @property
    def num_silent(self) -> int:
        return self._num_silent

    @property
    def num_repeated(self) -> int:
        return int(self._repeated.max())


def _tail(holds: npt.NDArray[np.bool_], before: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """For how many frames in a row, up to the last one, it holds: [frames, things], behind so many frames before."""
    num_frames = len(holds)
    return np.where(holds.all(0), before + num_frames, (~holds[::-1]).argmax(0))
