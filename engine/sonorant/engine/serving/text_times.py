"""When the text of a stream is spoken, from what the workers tell: how far in its text the speech is at each frame."""

from bisect import bisect_left
from collections.abc import Iterable

from sonorant.engine.prompt.offsets import TokenOffsets
from sonorant.engine.prompt.tokenizer import Tokenizer

MOST_OF_A_TOKEN = 0.4  # of what is spoken last: where nothing follows, positions come to rest at its middle


class TextTimes:
    def __init__(self, tokenizer: Tokenizer, frame_ms: float, positions: Iterable[float]) -> None:
        """`positions` of the frames that were made before."""
        self.offsets = TokenOffsets(tokenizer)
        self._frame_ms = frame_ms
        self._positions = list(positions)  # at the middle of each frame, as far as is told; in tokens
        self._last_spoken: float | None = None  # position, once all text is there

    @property
    def positions(self) -> tuple[float, ...]:
        """Where in the text the speech is at the middle of each frame, in tokens; as far as it is known."""
        return tuple(self._positions)

    def reached_ms(self, char: int) -> float | None:
        """When this character of the text begins, in the time of the audio; None while that is not known.

        Times grow with the text. They are known with the audio of the frame where they are, or before.
        """
        position = self.offsets.position_of(char)
        frame = bisect_left(self._positions, position)
        if frame == len(self._positions):
            return None
        middle, after = frame + 0.5, self._positions[frame]
        if frame == 0:
            return 0.0
        before = self._positions[frame - 1]
        return (middle - (after - position) / (after - before)) * self._frame_ms

    def end_text(self, last_char: int) -> None:
        """All of it is there, and this is its last character that is spoken."""
        self._last_spoken = int(self.offsets.position_of(last_char)) + MOST_OF_A_TOKEN

    @property
    def said_at(self) -> int | None:
        """The frame in which the last of the text is being said; None: not yet, or more of it may come."""
        if self._last_spoken is None or self._last < self._last_spoken:
            return None
        return bisect_left(self._positions, self._last_spoken)

    def tell(self, frame: int, position: float) -> None:
        """Of a frame, before its audio comes."""
        del self._positions[frame:]
        self._positions += [self._last] * (frame - len(self._positions)) + [position]

    def go_on_at(self, frame: int) -> float:
        """About where the speech is when it is made next. What was told of this frame and of later ones is void."""
        del self._positions[frame:]
        return self._last

    @property
    def _last(self) -> float:
        return self._positions[-1] if self._positions else 0.0
