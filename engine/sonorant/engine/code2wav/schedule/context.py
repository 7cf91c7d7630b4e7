"""What the batcher must know of a decoder to decode frames whose audio nobody hears. Pure."""

from dataclasses import dataclass

# Unheard frames in one call, per row that a call may have. More would hold up live streams for too long. Fewer would
# delay first audio, which waits for all unheard frames: all streams of a dead pair may come at once.
UNHEARD_CALL_FRAMES = 4
ATTENDED_CALL_FRAMES = 16  # the same in calls of `attended_frames`


@dataclass(frozen=True, slots=True)
class DecoderContext:
    """How much of the past one decoder needs, and how many unheard frames of a row its calls take."""

    receptive_frames: int  # the next frame depends on at most so many before it
    chunk_frames: int  # that one call should take
    # Calls of just so many frames cost little, because they leave layers out that the frames after them make up for.
    attended_frames: tuple[int, ...] = ()
    convolved_frames: int = 0  # at least so many frames must come after such a call
    silent_first_frames: int = 0  # so many of a stream's frames may be silence that is not sent, so nobody plays them

    def next_unheard(self, num_unheard: int) -> int:
        """How many frames the next call takes, of so many up to the first that is heard, or to a state to be kept."""
        fitting = [size for size in self.attended_frames if size + self.convolved_frames <= num_unheard]
        return max(fitting, default=min(num_unheard, self.chunk_frames))

    def most_unheard(self, size: int, max_rows: int) -> int:
        """How many frames all rows of a call may have together if each has `size` of them, which nobody hears."""
        return max_rows * (ATTENDED_CALL_FRAMES if size in self.attended_frames else UNHEARD_CALL_FRAMES)
