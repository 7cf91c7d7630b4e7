"""What a listener of one utterance would have heard, worked out from arrival times. Pure: no clock, no I/O, no gRPC.

The listener has no start buffer: the first chunk plays when it arrives, each later one as soon as it is here and the
one before it is over. Waiting in between is a gap. Times are seconds of one monotonic clock.
"""

from dataclasses import dataclass

import numpy as np

AUDIBLE_LEVEL = 0.01  # of full scale (-40 dB): below it a sample counts as silence
SMALLEST_GAP_S = 0.001  # shorter waits are clock noise and inaudible


@dataclass(frozen=True, slots=True)
class PlaybackReport:
    """Times to first audio run from the first text sent; NaN where there was none."""

    ttfa_s: float  # to the arrival of the first sample
    ttfa_audible_s: float  # to the moment the first sample above AUDIBLE_LEVEL is heard
    elapsed_s: float  # to the arrival of the last sample
    audio_s: float
    num_gaps: int
    gap_s: float  # all of them together
    longest_gap_s: float

    @property
    def rtf(self) -> float:
        """Real-time factor as the client sees it; with text that is sent slowly it includes the wait for the text."""
        return self.elapsed_s / self.audio_s if self.audio_s else float("nan")


class PlaybackMeter:
    """Collects the arrivals of one utterance."""

    def __init__(self, sample_rate_hz: int) -> None:
        self._sample_rate_hz = sample_rate_hz
        self._text_sent_s = float("nan")
        self._first_audio_s = float("nan")
        self._last_audio_s = float("nan")
        self._audible_s = float("nan")
        self._played_until_s = float("nan")
        self._num_samples = 0
        self._gaps_s: list[float] = []

    def text_sent(self, now_s: float) -> None:
        """Only the first call counts."""
        if np.isnan(self._text_sent_s):
            self._text_sent_s = now_s

    def audio_arrived(self, now_s: float, num_samples: int, pcm_s16le: bytes = b"") -> None:
        """`pcm_s16le` is looked at for audible sound; without it `ttfa_audible_s` stays NaN."""
        if num_samples == 0:
            return
        if self._num_samples == 0:
            self._first_audio_s = self._played_until_s = now_s
        if now_s - self._played_until_s > SMALLEST_GAP_S:
            self._gaps_s.append(now_s - self._played_until_s)
        starts_s = max(now_s, self._played_until_s)
        if np.isnan(self._audible_s):
            loud = np.abs(np.frombuffer(pcm_s16le, "<i2").astype(np.int32)) >= AUDIBLE_LEVEL * 32768
            if loud.any():
                self._audible_s = starts_s + int(loud.argmax()) / self._sample_rate_hz
        self._played_until_s = starts_s + num_samples / self._sample_rate_hz
        self._last_audio_s = now_s
        self._num_samples += num_samples

    def report(self) -> PlaybackReport:
        return PlaybackReport(
            ttfa_s=self._first_audio_s - self._text_sent_s,
            ttfa_audible_s=self._audible_s - self._text_sent_s,
            elapsed_s=self._last_audio_s - self._text_sent_s,
            audio_s=self._num_samples / self._sample_rate_hz,
            num_gaps=len(self._gaps_s),
            gap_s=sum(self._gaps_s),
            longest_gap_s=max(self._gaps_s, default=0.0),
        )
