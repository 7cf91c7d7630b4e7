"""When each part of a stream's text is spoken, which may still be coming. Pure."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence

import numpy as np

from sonorant.engine.prompt.tokenizer import Tokenizer, TokenOffsets

MOST_OF_A_TOKEN = 0.4  # the last token counts as said here: positions stop near its middle, as nothing follows


class TextTimes:
    """When each part of a text is spoken, computed from the text positions that the workers send for each frame."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        language: str | None,
        frame_ms: float,
        positions: Iterable[float],
        told: Sequence[tuple[int, float]] = (),
    ) -> None:
        """`positions` are those of the frames made before; `told` stands in for them: see
        `SynthesisParams.times_told`."""
        self.offsets = TokenOffsets(tokenizer, language)
        self._frame_ms = frame_ms
        self._positions = list(positions)  # at the middle of each frame that is known, in tokens
        self._told = told
        self._last = self._positions[-1] if self._positions else 0.0
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
        return max(0.0, (middle - (after - position) / (after - before)) * self._frame_ms)

    def end_text(self, last_char: int) -> None:
        """Note that the text is complete, and that this is its last character that is spoken."""
        self._last_spoken = int(self.offsets.position_of(last_char)) + MOST_OF_A_TOKEN

    def how_far(self) -> tuple[int | None, int | None]:
        """Return the frame in which the last of the text is being said, None if it is not said yet or more text may
        come; and the frame in which the token being said was reached, None if all text is said."""
        if self._last_spoken is None or self._last < self._last_spoken:
            return None, bisect_left(self._positions, int(self._last))
        return bisect_left(self._positions, self._last_spoken), None

    def add_position(self, frame: int, position: float) -> None:
        """Take the position at the middle of a frame, before the frame's audio comes."""
        del self._positions[frame:]
        if (missing := frame - len(self._positions)) > 0:
            self._positions += [self._positions[-1] if self._positions else 0.0] * missing
        self._positions.append(position)
        self._last = position

    def go_on_at(self, frame: int) -> float:
        """Forget positions from this frame on, and return about where the speech is when it continues there."""
        del self._positions[frame:]
        if self._told and len(self._positions) < frame:
            self._positions = self._told_positions(frame)
        self._last = self._positions[-1] if self._positions else 0.0
        return self._last

    def _told_positions(self, num_frames: int) -> list[float]:
        """Return the positions of the first frames from what was told of them. What a caller told need not grow."""
        tokens = [self.offsets.position_of(char) for char, _ in self._told]
        begins_ms = [begin_ms for _, begin_ms in self._told]
        middles_ms = (np.arange(num_frames) + 0.5) * self._frame_ms
        grown = np.maximum.accumulate([0.0, *begins_ms]), np.maximum.accumulate([0.0, *tokens])
        positions: list[float] = np.interp(middles_ms, *grown).tolist()
        return positions
