"""How long a chunk can wait for more frames, and how much a call may hold, by how long talker and decoder took lately.
Pure."""

import math

# A listener keeps this part of a frame in hand when the next chunk comes, against delays on its way.
RESERVE = 0.5

# Frames of all rows together: what a call may always hold, and what none ever does.
LEAST_CALL_FRAMES = 48
MOST_CALL_FRAMES = 10_000
# Of a frame, for a call. With many streams a step takes longer, but a listener's second frame cannot wait as long.
LONGEST_CALL = 0.25
GROWTH = 1.25  # of what a call may hold, after one that held about as much and was quick

DECAY = 0.8  # per step of the talker and per call, of the longest time that is remembered


class Pace:
    def __init__(self, frame_s: float) -> None:
        self._frame_s = frame_s
        self._step_s = 0.0  # the longest of the talker's last steps
        self._call_s = 0.0  # the longest of the decoder's last calls
        # Of all rows together, so that a call takes no longer than a step, nor LONGEST_CALL.
        self.max_call_frames: float = MOST_CALL_FRAMES

    @property
    def margin_s(self) -> float:
        """A listener who runs dry by then cannot wait for one more frame: it would be made, then decoded and sent.

        A step that takes longer than a frame lasts is not waited for: the listener would run dry in any case.
        """
        return min(self._step_s, self._frame_s) + self._call_s + RESERVE * self._frame_s

    @property
    def urgent_s(self) -> float:
        """A listener who runs dry by then can neither wait for the end of the call under way, nor for one more."""
        return 2 * self._call_s + RESERVE * self._frame_s

    def max_rows(self, num_frames: int, num_waiting: int) -> float:
        """How many rows of so many frames a call may have, of those that wait for one.

        Where more wait than two calls could hold, the decoder is behind, and full calls are the quickest way.
        """
        fitting = max(1, int(self.max_call_frames / num_frames))
        return fitting if num_waiting <= 2 * fitting else math.inf

    def note_step(self, took_s: float) -> None:
        self._step_s = max(took_s, DECAY * self._step_s)

    def note_unheard_call(self, took_s: float) -> None:
        """It holds listeners up as any other, and says nothing of how long frames take that are heard."""
        self._call_s = max(took_s, DECAY * self._call_s)

    def note_call(self, took_s: float, num_frames: int) -> None:
        """`num_frames`: of all rows together.

        First frames come once per step of the talker. A longer call would have them wait; a shorter one is less
        efficient.
        """
        self.note_unheard_call(took_s)
        limit_s = min(self._step_s, LONGEST_CALL * self._frame_s)
        if took_s > limit_s > 0:
            fitting = num_frames * limit_s / took_s
            self.max_call_frames = max(LEAST_CALL_FRAMES, min(self.max_call_frames, fitting))
        elif GROWTH * num_frames > self.max_call_frames:
            self.max_call_frames = min(MOST_CALL_FRAMES, GROWTH * self.max_call_frames)
