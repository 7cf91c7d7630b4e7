"""Signs that a stream no longer speaks its text: it is silent, repeats itself, babbles, or misses its end. Pure.

Good speech comes nowhere near these limits (docs/decisions.md has the counts). The engine's own limits, which end a
stream, are higher. At these there is still time: frames that were not sent can be made again.
"""

from collections import deque
from collections.abc import Sequence

from sonorant.engine import Int16Array

SILENT_PEAK = 66  # of 32768, which is -54 dB: below it nobody hears speech
MAX_PERIOD = 48  # frames; longer loops are left to the engine's limit of all frames
# From this many such frames in a row, they are held back to see whether more follow.
SUSPECT_SILENT, SUSPECT_REPEATED = 8, 24
# This many in a row never occur in good speech.
BAD_SILENT, BAD_REPEATED = 25, 48
# After all text was said, this many silent frames in a row are the end. They belong to the speech.
TAIL_FRAMES = 4
# A stream that goes on for this many frames after that has missed its end.
BAD_OVER = 12
# The same limits if no silence follows: frames after the one in which the last of the text was said.
SUSPECT_SAID, BAD_SAID = 25, 75
# So many frames with sound at one token, in speech that is so many times as long as its text usually takes, are held
# back, and babble from the second number on.
SUSPECT_STANDING, STANDING, BABBLE_LONGER = 50, 75, 1.5


class Signs:
    """The signs in one stream, whose frames are pushed in order. Kept cheap, as all frames of all streams pass here."""

    def __init__(self) -> None:
        self.num_silent = 0  # silent frames in a row at the end
        self.num_repeated = 0  # frames in a row at the end that equal the one a period before; of the best period
        self.num_standing = 0  # frames with sound since the speech last moved on in its text
        self.is_clear = True  # whether none of this is worth a thought
        self._moved_at: int | None = None  # frame
        self.over_at: int | None = (
            None  # number of frames up to where, by all signs, everything was said; None: not yet
        )
        self.missed_end = False  # whether the stream still goes on far behind that
        self._num_frames = 0
        self._said_at: int | None = None  # frame
        self._tail_end: int | None = None  # number of frames up to the end of the silent tail
        # Only first codes are compared: they say what is spoken, the others how it sounds.
        self._places: dict[int, deque[int]] = {}  # by code: where it occurs in the last MAX_PERIOD frames
        self._past: deque[int] = deque()  # the first codes of these frames
        self._repeated: dict[int, int] = {}  # by period: how many frames repeat, where any do

    def push(
        self,
        codes: Int16Array,
        samples: Int16Array | None = None,
        said_at: int | None = None,
        moved_at: int | None = None,
    ) -> None:
        """Add frames: codes [frames, codebooks], samples [frames * frame_samples] or None if they were heard before.

        `said_at`: the frame in which the last of the text was said, once that is known. `moved_at`: the frame in which
        the token being said was reached; None if all is said, or if that is not known.
        """
        looked_at = codes if samples is not None else codes[-MAX_PERIOD - BAD_REPEATED :]  # there may be thousands
        self._num_frames += len(codes) - len(looked_at)
        for code in looked_at[:, 0].tolist():
            self._add(code)
        self.num_repeated = max(self._repeated.values(), default=0)
        if samples is None or not len(codes):
            self.num_silent = 0
        else:
            frames = samples.reshape(len(codes), -1)
            silent = ((frames.max(1) <= SILENT_PEAK) & (frames.min(1) >= -SILENT_PEAK)).tolist()  # of each frame
            self._said_at = said_at
            if said_at is not None and self._tail_end is None:
                self._look_for_tail(silent, said_at)
            last_loud = max((number for number, is_silent in enumerate(silent, 1) if not is_silent), default=0)
            self.num_silent = len(silent) - last_loud + (0 if last_loud else self.num_silent)
            if moved_at != self._moved_at:
                self._moved_at, self.num_standing = moved_at, 0
            if moved_at is not None:
                self.num_standing += silent[max(moved_at - (self._num_frames - len(silent)), 0) :].count(False)
        if self._tail_end is not None:
            self.over_at, self.missed_end = self._tail_end, self._num_frames - self._tail_end >= BAD_OVER
        elif self._said_at is not None:
            over_at = self._said_at + SUSPECT_SAID
            self.over_at = over_at if over_at < self._num_frames else None
            self.missed_end = self._num_frames - self._said_at >= BAD_SAID
        is_speech = self.num_silent < SUSPECT_SILENT and self.num_repeated < SUSPECT_REPEATED
        self.is_clear = is_speech and self.num_standing < SUSPECT_STANDING and self.over_at is None

    @property
    def stands_from(self) -> int:
        """The frame from which the speech stands still in its text."""
        return self._num_frames if self._moved_at is None else self._moved_at

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

    def _look_for_tail(self, silent: Sequence[bool], said_at: int) -> None:
        run = self.num_silent  # silent frames just before these
        for end, is_silent in enumerate(silent, self._num_frames - len(silent) + 1):
            run = run + 1 if is_silent else 0
            if min(run, end - said_at) >= TAIL_FRAMES:
                self._tail_end = end
                return
