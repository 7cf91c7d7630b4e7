"""Whether a stream still speaks its text. A model that misses its end token goes on until something stops it.

Two signs can be read from frames alone: more of them than any reading of the text takes, and the same ones over and
over. Silence is the third; it shows where the audio is made, see sonorant.engine.code2wav.silence.
"""

from collections import deque

GRACE_FRAMES = 96  # for any text, however short: a breath, a laugh, a long word that is one token
MAX_PERIOD = 64  # frames; a longer loop is left to the limit of all frames


def frame_limit(frames_per_token: int, num_text_tokens: int) -> int:
    """Frames that a text may at most take."""
    return GRACE_FRAMES + frames_per_token * num_text_tokens


class Repetition:
    """For how many frames a stream has been repeating itself, with any period up to MAX_PERIOD.

    The first code of a frame stands for all: it says what is spoken, the others how it sounds.
    """

    def __init__(self) -> None:
        self._past = deque([-1] * MAX_PERIOD, maxlen=MAX_PERIOD)  # codes, the last one first
        self._runs = [0] * MAX_PERIOD  # [p - 1]: so many frames were as the one p frames before

    def add(self, first_code: int) -> int:
        """Take the next frame; how many frames the longest repetition has that it is in."""
        self._runs = [run + 1 if code == first_code else 0 for run, code in zip(self._runs, self._past, strict=True)]
        self._past.appendleft(first_code)
        return max(self._runs)
