"""Whether a stream still speaks: for how long it has been silent, or saying the same over and over. Pure.

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


class Signs:
    """Of one stream, told of all its frames in order. Kept cheap, since all that is spoken passes here."""

    def __init__(self) -> None:
        self.num_silent = 0  # frames in a row, the last ones
        self.num_repeated = 0  # frames in a row, the last ones, each as the one a period before; most of any period
        self._num_frames = 0
        # First codes: they say what is spoken, the others how it sounds.
        self._places: dict[int, deque[int]] = {}  # of each code, where it stood among the last MAX_PERIOD frames
        self._past: deque[int] = deque()  # these frames
        self._repeated: dict[int, int] = {}  # by period, where there are any

    def push(self, codes: Int16Array, samples: Int16Array | None = None) -> None:
        """[frames, codebooks] and [frames * frame_samples]; without samples, of frames that were heard before."""
        for code in codes[:, 0].tolist():
            self._add(code)
        self.num_repeated = max(self._repeated.values(), default=0)
        if samples is None or not len(codes):
            self.num_silent = 0
        else:
            self.num_silent = self._silent_tail(samples.reshape(len(codes), -1))

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
            if frame.max() > SILENT_PEAK or frame.min() < -SILENT_PEAK:
                return number
        return self.num_silent + len(frames)
