"""Works out what a listener of one utterance would have heard, from arrival times. Pure: no clock, no I/O, no gRPC.

The listener has no start buffer: the first chunk plays when it arrives, and each later one as soon as it has arrived
and the one before it is over. Waiting in between is a gap. Times are seconds of one monotonic clock.
"""

import math
import sys
from array import array
from dataclasses import dataclass
from itertools import pairwise

SMALLEST_GAP_S = 0.001  # shorter waits are clock noise and inaudible
# Audible sound: two successive windows, a hop apart, are louder than this (RMS without the mean, -45 dBFS).
AUDIBLE_RMS = 32768 * 10 ** (-45 / 20)
WINDOW_S, HOP_S = 0.02, 0.01
HEAD_S = 2.0  # how much of the audio is searched for the first sound

_NAN = float("nan")


@dataclass(frozen=True, slots=True)
class PlaybackReport:
    """Times to first audio run from the first text sent; NaN where there was none."""

    ttfa_s: float  # to the arrival of the first sample
    ttfa_audible_s: float  # to the moment the first sound is heard
    elapsed_s: float  # to the arrival of the last sample
    audio_s: float
    num_gaps: int
    gap_s: float  # all of them together
    longest_gap_s: float

    @property
    def rtf(self) -> float:
        """Real-time factor as the client sees it; with text that is sent slowly it includes the wait for the text."""
        return self.elapsed_s / self.audio_s if self.audio_s else _NAN


class PlaybackMeter:
    """Collects the arrivals of one utterance; `report` evaluates them."""

    def __init__(self, sample_rate_hz: int) -> None:
        self.text_sent_s = _NAN
        self._sample_rate_hz = sample_rate_hz
        self._arrivals: list[tuple[float, int]] = []  # when, samples
        self._head: list[bytes] = []
        self._head_room_bytes = int(HEAD_S * sample_rate_hz) * 2

    def text_sent(self, now_s: float) -> None:
        """Only the first call counts."""
        if self.text_sent_s != self.text_sent_s:
            self.text_sent_s = now_s

    @property
    def wants_samples(self) -> bool:
        """Whether `audio_arrived` still needs the bytes."""
        return self._head_room_bytes > 0

    def audio_arrived(self, now_s: float, num_samples: int, pcm_s16le: bytes = b"") -> None:
        """Note a chunk. `pcm_s16le` is searched for audible sound; without it `ttfa_audible_s` stays NaN."""
        if num_samples == 0:
            return
        self._arrivals.append((now_s, num_samples))
        if self._head_room_bytes > 0 and pcm_s16le:
            self._head.append(pcm_s16le)
            self._head_room_bytes -= len(pcm_s16le)

    @property
    def plays_until_s(self) -> float:
        """When the listener will have heard all that has arrived; -inf before anything has."""
        playing = self._playing()
        return playing[-1][1] if playing else -math.inf

    def audio_between_s(self, begin_s: float, end_s: float) -> float:
        """Audio that arrived in [begin, end)."""
        return sum(n for now_s, n in self._arrivals if begin_s <= now_s < end_s) / self._sample_rate_hz

    def report(self, until_s: float | None = None) -> PlaybackReport:
        """Evaluate the arrivals. `until_s`: more audio was due up to this time, so running out of it earlier is a gap,
        too."""
        playing = self._playing()
        first_s, last_s = (self._arrivals[0][0], self._arrivals[-1][0]) if self._arrivals else (_NAN, _NAN)
        gaps_s = [begins_s - before_s for (_, before_s), (begins_s, _) in pairwise(playing)]
        if until_s is not None and playing:
            gaps_s.append(until_s - playing[-1][1])
        gaps_s = [gap_s for gap_s in gaps_s if gap_s > SMALLEST_GAP_S]
        return PlaybackReport(
            ttfa_s=first_s - self.text_sent_s,
            ttfa_audible_s=self._audible_s(playing) - self.text_sent_s,
            elapsed_s=last_s - self.text_sent_s,
            audio_s=sum(n for _, n in self._arrivals) / self._sample_rate_hz,
            num_gaps=len(gaps_s),
            gap_s=sum(gaps_s),
            longest_gap_s=max(gaps_s, default=0.0),
        )

    def _playing(self) -> list[tuple[float, float]]:
        """The times at which each chunk begins and ends to play."""
        playing: list[tuple[float, float]] = []
        until_s = -float("inf")
        for now_s, num_samples in self._arrivals:
            begins_s = max(now_s, until_s)
            until_s = begins_s + num_samples / self._sample_rate_hz
            playing.append((begins_s, until_s))
        return playing

    def _audible_s(self, playing: list[tuple[float, float]]) -> float:
        """When the first sound is heard."""
        sample = first_sound(_samples(b"".join(self._head)), self._sample_rate_hz)
        if sample is None:
            return _NAN
        for (begins_s, _), (_, num_samples) in zip(playing, self._arrivals, strict=True):
            if sample < num_samples:
                return begins_s + sample / self._sample_rate_hz
            sample -= num_samples
        return _NAN


def _samples(pcm_s16le: bytes) -> "array[int]":
    samples = array("h", pcm_s16le)
    if sys.byteorder == "big":
        samples.byteswap()
    return samples


def first_sound(samples: "array[int]", sample_rate_hz: int) -> int | None:
    """Index of the first sample of the first two successive loud windows, or None."""
    hop, window = round(HOP_S * sample_rate_hz), round(WINDOW_S * sample_rate_hz)
    before_is_loud = False
    for begin in range(0, len(samples) - window + 1, hop):
        is_loud = _rms(samples[begin : begin + window]) > AUDIBLE_RMS
        if before_is_loud and is_loud:
            return begin - hop
        before_is_loud = is_loud
    return None


def _rms(samples: "array[int]") -> float:
    """Without the constant part. `statistics.pstdev` is exact and a hundred times slower."""
    mean = sum(samples) / len(samples)
    return math.sqrt(sum((sample - mean) ** 2 for sample in samples) / len(samples))
