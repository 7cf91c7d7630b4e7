"""When each part of a stream's text is spoken, computed from the text positions that the workers send per frame."""

from bisect import bisect_left
from collections.abc import Iterable

from sonorant.engine.prompt.offsets import TokenOffsets
from sonorant.engine.prompt.tokenizer import Tokenizer

MOST_OF_A_TOKEN = 0.4  # the last token counts as said here: positions stop near its middle, as nothing follows


class TextTimes:
    def __init__(self, tokenizer: Tokenizer, frame_ms: float, delay_ms: int, positions: Iterable[float]) -> None:
        """`delay_ms`: by how much a position comes after its sound. `positions` are those of the frames made before."""
        self.offsets = TokenOffsets(tokenizer)
        self._frame_ms = frame_ms
        self.delay_ms = delay_ms
        self._positions = list(positions)  # at the middle of each frame that is known, in tokens
        self._last_spoken: float | None = None  # position at which all text is said; None while more may come

    @property
    def positions(self) -> tuple[float, ...]:
        """Where in the text the speech is at the middle of each frame, in tokens; for the frames where it is known."""
        return tuple(self._positions)

    def reached_ms(self, char: int) -> float | None:
        """Return when this character of the text begins, in ms of the audio; None while that is not known.

        Times grow with the text. A time is known as soon as the audio of its frame is there, or earlier.
        """
        position = self.offsets.position_of(char)
        frame = bisect_left(self._positions, position)
        if frame == len(self._positions):
            return None
        middle, after = frame + 0.5, self._positions[frame]
        if frame == 0:
            return 0.0
        before = self._positions[frame - 1]
        return max(0.0, (middle - (after - position) / (after - before)) * self._frame_ms - self.delay_ms)

    def end_text(self, last_char: int) -> None:
        """Note that the text is complete, and that this is its last character that is spoken."""
        self._last_spoken = int(self.offsets.position_of(last_char)) + MOST_OF_A_TOKEN

    @property
    def said_at(self) -> int | None:
        """The frame in which the last of the text is being said; None if it is not said yet, or more text may come."""
        if self._last_spoken is None or self._last < self._last_spoken:
            return None
        return bisect_left(self._positions, self._last_spoken)

    @property
    def moved_at(self) -> int | None:
        """The frame in which the token being said was reached; None if all text is said."""
        return None if self.said_at is not None else bisect_left(self._positions, int(self._last))

    def add_position(self, frame: int, position: float) -> None:
        """Take the position at the middle of a frame, before the frame's audio comes."""
        del self._positions[frame:]
        self._positions += [self._last] * (frame - len(self._positions)) + [position]

    def go_on_at(self, frame: int) -> float:
        """Forget positions from this frame on, and return about where the speech is when it continues there."""
        del self._positions[frame:]
        return self._last

    @property
    def _last(self) -> float:
        return self._positions[-1] if self._positions else 0.0
