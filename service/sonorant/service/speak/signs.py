"""Whether a stream still speaks: for how long it has been silent, saying the same over and over, or been over. Pure.

Good speech comes nowhere near these limits (docs/decisions.md has the counts), and the engine's own, which end a
stream, are further off. Here there is still time: what has not been sent can be made again.
"""

from collections import deque

from sonorant.engine import Int16Array

SILENT_PEAK = 66  # of 32768, which is -54 dB: below it nobody hears speech
MAX_PERIOD = 48  # frames; a longer loop is left to the engine's limit of all frames
# Frames in a row from which on it is waited to see whether there are more of them, ...
SUSPECT_SILENT, SUSPECT_REPEATED = 8, 24
# ... and so many that no speech has them.
BAD_SILENT, BAD_REPEATED = 25, 48
# With all text said, so many silent frames in a row are the end, and belong to it; ...
TAIL_FRAMES = 4
# ... what goes on for so many frames behind it has missed its end.
BAD_OVER = 12
# The same where no silence follows, from the last of the text on.
SUSPECT_SAID, BAD_SAID = 25, 75


class Signs:
    """Of one stream, told of all its frames in order. Kept cheap, since all that is spoken passes here."""

    def __init__(self) -> None:
        self.num_silent = 0  # frames in a row, the last ones
        self.num_repeated = 0  # frames in a row, the last ones, each as the one a period before; most of any period
        self._num_frames = 0
        self._said_at: int | None = None  # frame
        self._tail_end: int | None = None  # frames up to it
        # First codes: they say what is spoken, the others how it sounds.
        self._places: dict[int, deque[int]] = {}  # of each code, where it stood among the last MAX_PERIOD frames
        self._past: deque[int] = deque()  # these frames
        self._repeated: dict[int, int] = {}  # by period, where there are any

    def push(self, codes: Int16Array, samples: Int16Array | None = None, said_at: int | None = None) -> None:
        """[frames, codebooks] and [frames * frame_samples]; without samples, of frames that were heard before.

        `said_at`: the frame in which the last of the text was being said, once that is known.
        """
        for code in codes[:, 0].tolist():
            self._add(code)
        self.num_repeated = max(self._repeated.values(), default=0)
        if samples is None or not len(codes):
            self.num_silent = 0
        else:
            frames = samples.reshape(len(codes), -1)
            self._said_at = said_at
            if said_at is not None and self._tail_end is None:
                self._look_for_tail(frames, said_at)
            self.num_silent = self._silent_tail(frames)

    @property
    def over_at(self) -> int | None:
        """Frames up to where all was said, by all signs; None: it is not over."""
        if self._tail_end is not None or self._said_at is None:
            return self._tail_end
        over_at = self._said_at + SUSPECT_SAID
        return over_at if over_at < self._num_frames else None

    @property
    def missed_end(self) -> bool:
        """It is over, and goes on."""
        if self._tail_end is not None:
            return self._num_frames - self._tail_end >= BAD_OVER
        return self._said_at is not None and self._num_frames - self._said_at >= BAD_SAID

    def _add(self, code: int) -> None:
        now, before = self._num_frames, self._repeated
        places = self._places.setdefault(code, deque())
        self._repeated = {now - place: before.get(now - place, 0) + 1 for place in places}
        places.append(now)
        self._past.append(code)
        self._num_frames += 1
        if len(self._past) > MAX_PERIOD:
            oldest = self._past.popleft()
            self._places[oldest].popleft()
            if not self._places[oldest]:
                del self._places[oldest]

    def _silent_tail(self, frames: Int16Array) -> int:  # [frames, frame_samples]
        """Looks from the end on, and no further than to the first frame that is loud: most often that is the last."""
        for number, frame in enumerate(frames[::-1]):
            if not _is_silent(frame):
                return number
        return self.num_silent + len(frames)

    def _look_for_tail(self, frames: Int16Array, said_at: int) -> None:
        run = self.num_silent  # before these
        for end, frame in enumerate(frames, self._num_frames - len(frames) + 1):
            run = run + 1 if _is_silent(frame) else 0
            if min(run, end - said_at) >= TAIL_FRAMES:
                self._tail_end = end
                return


def _is_silent(samples: Int16Array) -> bool:
    return bool(samples.max() <= SILENT_PEAK and samples.min() >= -SILENT_PEAK)
