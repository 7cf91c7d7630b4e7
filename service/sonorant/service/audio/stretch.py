"""Makes a stream of speech faster or slower at the same pitch, by overlap-add of similar pieces (WSOLA). Pure.

At every hop, the output continues with the input near the due position, at the offset where the waveform is most like
what would have come next, and fades over to it within one hop. The search reaches further than half a period of a low
voice to either side, so pieces meet in phase. A hop is made as soon as its input is there: 8 to 20 ms after its time.

The output does not depend on how the input is cut: due positions are counted from the start, and correlations are sums
of integers that doubles hold exactly. The length is ceil(n / speed).
"""

import math

import numpy as np
import numpy.typing as npt

from sonorant.service.audio.pcm import EMPTY, Samples, to_int16

SPEEDS = (0.5, 2.0)
HOP_S = 0.012
REACH_S = 0.008

Doubles = npt.NDArray[np.float64]


class Stretcher:
    def __init__(self, speed: float, sample_rate_hz: int) -> None:
        self._speed = speed
        self._hop = round(HOP_S * sample_rate_hz)
        self._reach = round(REACH_S * sample_rate_hz)
        fade = np.sin((np.arange(self._hop) + 0.5) * (np.pi / 2 / self._hop)) ** 2
        self._fade_in, self._fade_out = fade, 1 - fade
        self._reset()

    def _reset(self) -> None:
        self._held = np.zeros(0)  # input from `_start` on
        self._start = 0
        self._num_in = self._num_hops = 0
        self._goes_on = 0  # where the input continues after the piece used last

    def push(self, samples: Samples) -> Samples:
        """Add samples and return all output that later samples cannot change."""
        self._num_in += len(samples)
        self._held = np.concatenate([self._held, samples])
        hops = []
        while self._next_end() <= self._num_in and (self._num_hops + 1) * self._hop <= self._num_out():
            hops.append(self._next_hop())
        return np.concatenate(hops) if hops else EMPTY

    def finish(self) -> Samples:
        """Return the rest. What is pushed afterwards is another piece of sound."""
        num_left = self._num_out() - self._num_hops * self._hop
        hops = []
        for _ in range(-(-num_left // self._hop)):
            missing = max(0, self._next_end() - self._start - len(self._held))
            self._held = np.concatenate([self._held, np.zeros(missing)])
            hops.append(self._next_hop())
        rest = np.concatenate([EMPTY, *hops])[:num_left]
        self._reset()
        return rest

    def _num_out(self) -> int:
        """Return the output length of all input so far."""
        return math.ceil(self._num_in / self._speed)

    def _due(self) -> int:
        return round(self._num_hops * self._hop * self._speed)

    def _next_end(self) -> int:
        """Return how much input the next hop needs."""
        return max(self._goes_on, self._due() + self._reach) + self._hop

    def _next_hop(self) -> Samples:
        before = self._goes_on - self._start
        goes_on = self._held[before : before + self._hop]
        low = max(0, self._due() - self._reach)
        first, last = low - self._start, self._due() + self._reach - self._start
        begin = first + _best_fit(goes_on, self._held[first : last + self._hop])
        faded = self._fade_out * goes_on + self._fade_in * self._held[begin : begin + self._hop]
        self._num_hops += 1
        self._goes_on = self._start + begin + self._hop
        unneeded = min(self._goes_on, max(0, self._due() - self._reach)) - self._start
        self._held = self._held[unneeded:]
        self._start += unneeded
        return to_int16(faded)


def _best_fit(wanted: Doubles, candidates: Doubles) -> int:
    """Return where in `candidates` the waveform is most like `wanted`, whatever its level."""
    likeness = np.correlate(candidates, wanted, mode="valid")
    energy = np.concatenate([[0.0], np.cumsum(candidates**2)])
    norm = np.sqrt(energy[len(wanted) :] - energy[: -len(wanted)])
    return int(np.argmax(likeness / np.maximum(norm, 1.0)))
