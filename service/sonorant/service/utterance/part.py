"""A segment of an utterance: its words that were not reported yet, and where its audio has sounds. Pure."""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sonorant.service.audio.pcm import Samples

SILENCE_AFTER_MS = 200.0  # usual silence at the end of a segment
LOUD = 400.0  # root mean square above which a block is sound
BLOCK_MS = 10

ReachedMs = Callable[[int], float | None]  # when a character of a segment's spoken text begins; None: not known yet


@dataclass(slots=True, eq=False)
class TimedSegment:
    """A segment: its words that were not reported yet, and what is known of its audio, in times of its own: from its
    beginning, and before `speed`."""

    speed: float
    start: int = 0  # offset of its text
    spoken_start: int = 0  # the same in the spoken text
    # The latest text. It is divided into words only when it is much or somebody asks, so as not to delay its speech.
    unread: str = ""
    read_end: int = 0  # offset at which it begins
    words: deque[tuple[int, str, int]] = field(default_factory=deque)  # not reported yet: offset, word, units
    units_left: int = 0  # of these words
    units: int = 0
    unfinished: str = ""  # a word of which more may come
    text_end: int | None = None  # offset of its end, once that is known
    audio_ms: float = 0.0
    audio_ended: bool = False
    onset_ms: float | None = None  # when the first sound begins
    loud_ms: list[float] = field(default_factory=list)  # the end of each block with sound
    reached_ms: ReachedMs | None = None
    has_told: bool = False  # whether a word was reported
    # The latest audio. It is measured only when it is much or somebody asks, so as not to delay its frames.
    unmeasured: list[Samples] = field(default_factory=list)

    def speech_end_ms(self) -> float:
        """Return when the speech ends. Only for audio that has ended."""
        onset_ms = self.onset_ms or 0.0
        return self.audio_ms - min(SILENCE_AFTER_MS, (self.audio_ms - onset_ms) / 3)

    def measure(self, rate_hz: int) -> None:
        """Find the sounds in all audio so far."""
        if not self.unmeasured:
            return
        samples = self.unmeasured[0] if len(self.unmeasured) == 1 else np.concatenate(self.unmeasured)
        self.unmeasured = []
        start_ms = self.audio_ms - len(samples) * 1000 / rate_hz
        for block in _loud_blocks(samples, rate_hz):
            end_ms = start_ms + (int(block) + 1) * BLOCK_MS
            # A single block is not speech: the codecs of the built-in voices begin with a pulse of 10 ms.
            if self.onset_ms is None and self.loud_ms and end_ms - self.loud_ms[-1] < 1.5 * BLOCK_MS:
                self.onset_ms = self.loud_ms[-1] - BLOCK_MS
            self.loud_ms.append(end_ms)

    def sound_ms(self, since_ms: float) -> float:
        """Return how much sound there was since then."""
        return (len(self.loud_ms) - bisect_right(self.loud_ms, since_ms)) * BLOCK_MS

    def sound_end_ms(self, since_ms: float, until_ms: float) -> float:
        """Return the end of the last sound between the two times, or `until_ms` if there is none."""
        index = bisect_right(self.loud_ms, until_ms)
        return self.loud_ms[index - 1] if index and self.loud_ms[index - 1] > since_ms else until_ms


def _loud_blocks(samples: Samples, rate_hz: int) -> npt.NDArray[np.intp]:
    """Return the numbers of the blocks that have sound."""
    size = rate_hz * BLOCK_MS // 1000
    blocks = samples[: len(samples) // size * size].reshape(-1, size).astype(np.float32)
    loud: npt.NDArray[np.intp] = np.flatnonzero(np.einsum("ij,ij->i", blocks, blocks) > LOUD**2 * size)
    return loud
