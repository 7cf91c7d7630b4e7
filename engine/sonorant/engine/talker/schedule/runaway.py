"""Finds runaways: streams that no longer speak their text. A model that misses its end token would never stop.

Two signs show in the frames alone: more frames than any reading of the text takes, and the same frames over and over.
The third is silence, which shows in the audio; see sonorant.engine.code2wav.schedule.silence.
"""

from collections import deque

GRACE_FRAMES = 96  # allowed for any text, however short: for a breath, a laugh, a long word that is one token
MAX_PERIOD = 64  # frames; a longer loop is ended by the limit of all frames


def frame_limit(frames_per_token: int, num_text_tokens: int) -> int:
    """The most frames that a text may take."""
    return GRACE_FRAMES + frames_per_token * num_text_tokens


class Repetition:
    """Counts for how many frames a stream has been repeating itself, with any period up to MAX_PERIOD.

    Only the first code of each frame is compared: it says what is spoken, the others how it sounds.
    """

    def __init__(self) -> None:
        self._past = deque([-1] * MAX_PERIOD, maxlen=MAX_PERIOD)  # first codes, the last frame's first
        self._runs = [0] * MAX_PERIOD  # [p - 1]: how many of the last frames equal the ones p frames before them

    def add(self, first_code: int) -> int:
        """Add the next frame; return how many frames the longest repetition has that it belongs to."""
        self._runs = [run + 1 if code == first_code else 0 for run, code in zip(self._runs, self._past, strict=True)]
        self._past.appendleft(first_code)
        return max(self._runs)
