"""The frames that the engine made of one segment. Those that were not given out yet can be taken back. Pure.

Audio that went into the encoder counts as heard: encoders keep state, so it cannot be taken back. So audio waits here,
as the engine made it, until it is due.
"""

from collections import deque

import numpy as np

from sonorant.engine import Int16Array, PcmChunk
from sonorant.service.utterance.signs import (
    BAD_REPEATED,
    BAD_SILENT,
    SUSPECT_REPEATED,
    SUSPECT_SILENT,
    Signs,
)

FIRST_ROOM = 64  # frames that fit before the array grows
RISING_FRAMES = 12  # in so many a segment that begins quieter comes to its own level
QUIET_PEAK = 128  # of 32768, which is -48 dB: the quietest beginning of a word is louder
_NONE: Int16Array = np.empty(0, np.int16)


class SegmentFrames:
    """Frames are counted from the segment's first, including those that another session made."""

    def __init__(
        self, frame_samples: int, num_codebooks: int, silent_first_frames: int = 0, begins_quieter_db: float = 0.0
    ) -> None:
        """`frame_samples`: at the engine's rate. `silent_first_frames`: silence is left out in so many frames at the
        beginning, as the listener would only wait for longer. Half a frame stays at least, as it is all that a player
        which starts at once has until the next frame comes. `begins_quieter_db`: by how much the segment before has
        ended quieter, as listeners should not hear where one text became two."""
        self._frame_samples = frame_samples
        self._silent_first_frames = silent_first_frames
        self._begins_quieter_db = begins_quieter_db
        self._codes: Int16Array = np.empty((FIRST_ROOM, num_codebooks), np.int16)  # of all frames, with spare room
        self._waiting: deque[Int16Array] = deque()  # samples that were not given out
        self.signs = Signs()  # of speech gone wrong
        self.num_frames = 0
        self.num_waiting = 0  # frames at the end that were not given out
        self.unsent_samples = 0  # silence at the beginning that is left out
        self.num_codes_taken = 0  # frames at the beginning whose codes the client has

    @property
    def num_given(self) -> int:
        return self.num_frames - self.num_waiting

    def known(self, codes: Int16Array, unsent_samples: int) -> None:
        """Add frames [frames, codebooks] that need no audio. They come before all others. `unsent_samples`: as
        they were."""
        self._append(codes)
        self.unsent_samples = unsent_samples
        self.signs.push(codes)
        self.num_codes_taken += len(codes)

    def push(
        self, chunk: PcmChunk, *, is_kept: bool = False, said_at: int | None = None, moved_at: int | None = None
    ) -> Int16Array:
        """Add frames, and return their samples that are to be heard. `is_kept`: from the phrase cache, so known to be
        good. For the others see `Signs.push`."""
        samples = chunk.samples
        if self._begins_quieter_db:
            samples = risen(samples, self.num_frames, self._frame_samples, self._begins_quieter_db)
        begins_silent = self.unsent_samples == self.num_frames * self._frame_samples
        if begins_silent and self.num_frames < self._silent_first_frames:
            most = (self._silent_first_frames - self.num_frames) * self._frame_samples
            num_quiet = min(most, _num_quiet(chunk.samples, self._frame_samples // 8, is_first=not self.num_frames))
            num_quiet -= max(0, num_quiet % self._frame_samples - self._frame_samples // 2)
            self.unsent_samples += num_quiet
            samples = samples[num_quiet:]
        self._append(chunk.codes)
        if len(samples):
            self._waiting.append(samples)
        if not is_kept:
            self.signs.push(chunk.codes, chunk.samples, said_at, moved_at)
        self.num_waiting += chunk.num_frames
        return samples

    def give(self, num_frames: int) -> tuple[Int16Array, Int16Array]:
        """Give out the next waiting frames: their codes [frames, codebooks] and samples. They become final."""
        num_frames = min(num_frames, self.num_waiting)
        given = self.num_frames - self.num_waiting
        codes = self._codes[given : given + num_frames]
        samples: list[Int16Array] = []
        missing = self.num_samples(given + num_frames) - self.num_samples(given)
        while missing:
            first = self._waiting.popleft()
            if len(first) > missing:
                self._waiting.appendleft(first[missing:])
                first = first[:missing]
            samples.append(first)
            missing -= len(first)
        self.num_waiting -= num_frames
        return codes, samples[0] if len(samples) == 1 else np.concatenate([_NONE, *samples])

    def num_samples(self, num_frames: int) -> int:
        """Return how many samples the first `num_frames` have for the listener."""
        return max(0, num_frames * self._frame_samples - self.unsent_samples)

    def take_codes(self, num_frames: int) -> tuple[int, Int16Array]:
        """Return the codes [frames, codebooks] of the first `num_frames` that the client lacks, and how many
        frames come before them. After frames are taken back, codes are returned again from there on.
        """
        num_before, self.num_codes_taken = self.num_codes_taken, num_frames
        return num_before, self._codes[num_before:num_frames]

    def take_back(self, num_frames: int) -> int:
        """Keep `num_frames`, or more if more were given out. Return how many were kept."""
        num_kept = min(max(num_frames, self.num_given), self.num_frames)
        rest = self.num_samples(num_kept) - self.num_samples(self.num_given)
        samples = np.concatenate(self._waiting)[:rest] if self._waiting else _NONE
        self._waiting = deque([samples] if len(samples) else ())
        self._codes = self._codes.copy()  # callers may still hold views of the old array
        self.num_codes_taken = min(self.num_codes_taken, self.num_given)
        self.num_frames, self.num_waiting = num_kept, num_kept - self.num_given
        self.unsent_samples = min(self.unsent_samples, num_kept * self._frame_samples)
        self.signs = Signs()
        self.signs.push(self.codes(num_kept))
        return num_kept

    def codes(self, num_frames: int) -> Int16Array:
        """Return the codes of the first `num_frames`: [frames, codebooks]."""
        return self._codes[:num_frames]

    def _append(self, codes: Int16Array) -> None:
        num_frames = self.num_frames + len(codes)
        if num_frames > len(self._codes):
            more = np.empty((2 * num_frames, codes.shape[1]), np.int16)
            more[: self.num_frames] = self.codes(self.num_frames)
            self._codes = more
        self._codes[self.num_frames : num_frames] = codes
        self.num_frames = num_frames

    # Signs of speech gone wrong

    @property
    def num_over(self) -> int:
        """How many frames came after all of the text was said."""
        over_at = self.signs.over_at
        return 0 if over_at is None else min(self.num_frames - over_at, self.num_waiting)

    @property
    def num_suspect(self) -> int:
        """How many frames at the end should wait until it is known whether they are speech."""
        silent, repeated = self.signs.num_silent, self.signs.num_repeated
        suspect = max(silent if silent >= SUSPECT_SILENT else 0, repeated if repeated >= SUSPECT_REPEATED else 0)
        return max(min(suspect, self.num_waiting), self.num_over)

    @property
    def num_good(self) -> int:
        """How many frames come before what is certainly not speech; all, if nothing is."""
        silent, repeated = self.signs.num_silent, self.signs.num_repeated
        bad = max(silent if silent >= BAD_SILENT else 0, repeated if repeated >= BAD_REPEATED else 0)
        return self.num_frames - bad


def risen(samples: Int16Array, num_before: int, frame_samples: int, begins_quieter_db: float) -> Int16Array:
    """Return samples of a segment, behind `num_before` frames of it, as loud as they are to be heard. It begins so much
    quieter, and rises to its own level."""
    begin, num_rising = num_before * frame_samples, RISING_FRAMES * frame_samples
    if begin >= num_rising:
        return samples
    left = np.maximum(1 - np.arange(begin, begin + len(samples)) / num_rising, 0)
    return np.rint(samples * 10 ** (-begins_quieter_db * left / 20)).astype(np.int16)


def _num_quiet(samples: Int16Array, block: int, *, is_first: bool) -> int:
    """Count the samples before the first block with sound. `is_first`: the first 5 ms may have a click."""
    peaks = np.abs(samples, dtype=np.int32).reshape(-1, block)
    if is_first:
        peaks[0, : block // 2] = 0
    is_loud = peaks.max(1) > QUIET_PEAK
    return int(is_loud.argmax()) * block if is_loud.any() else len(samples)
