"""What the batcher knows of one stream. Pure."""

import math
from collections import deque
from dataclasses import dataclass

from sonorant.engine.ipc.messages import BeginStream, EndStream
from sonorant.engine.types import Int16Array

NO_SLOT = -1
NEVER_S = math.inf
# Frames that a listener has to play at least when the first frame comes for which a stream was given credit. Credit is
# for 12 frames more than was sent, and up to 7 of them are gathered to a lump; one is heard until the frame is there.
IN_HAND_FRAMES = 4


@dataclass(slots=True, eq=False)
class DecodedStream:
    stream_id: int
    times: tuple[float, ...]  # the times of FirstChunk that are known so far
    # When the listener has nothing left to play; before the first chunk, when it began. For a background stream never.
    dry_s: float
    first_heard: int  # frame number; frames before it are decoded for their state alone
    first_pending: int  # frame number of pending[0]; negative in the reference
    pending: deque[Int16Array]  # [codebooks] each
    num_skipped: int  # frames at the beginning that are not decoded, as nothing depends on them any more
    chunk_frames: int  # of the next chunk; it waits for as many, unless it is due earlier
    reference: bytes = b""  # the codes of the reference
    is_stored: bool = False
    is_background: bool = False
    slot: int = NO_SLOT
    num_received: int = 0
    num_silent: int = 0  # consecutive silent frames, counted back from the last one decoded
    gathered_s: float = NEVER_S  # when a whole chunk has waited long enough for those of others
    is_decoding: bool = False  # in a call that is under way; until it is over, the slot and this stay as they are
    is_flushed: bool = False
    is_blocked: bool = False  # since its last frame it lacks only credit
    end: EndStream | None = None  # to be sent after the last frame

    @classmethod
    def begun(cls, record: BeginStream, receptive_frames: int, chunk_frames: int, now_s: float) -> "DecodedStream":
        """`receptive_frames`: so many frames before the next one are decoded for their state."""
        past, first_frame = record.past_codes, record.first_frame
        num_skipped = 0 if past is None else max(0, len(past) - receptive_frames)
        pending = deque(() if past is None else past[num_skipped:])
        has_reference = len(pending) > first_frame
        return cls(
            stream_id=record.stream_id,
            times=(record.opened_s, record.started_s),
            dry_s=NEVER_S if record.is_background else now_s,
            first_heard=first_frame,
            first_pending=first_frame - len(pending),
            pending=pending,
            num_skipped=num_skipped,
            chunk_frames=chunk_frames,
            reference=past[: len(past) - first_frame].tobytes() if past is not None and has_reference else b"",
            num_received=first_frame,
            is_stored=record.is_stored,
            is_background=record.is_background,
        )

    @property
    def num_unheard(self) -> int:
        """How many of the next frames are decoded for their state alone; inside the reference, those up to its end."""
        return -self.first_pending if self.first_pending < 0 else self.first_heard - self.first_pending

    @property
    def num_decoded(self) -> int:
        """How many frames were decoded to be heard."""
        return max(0, self.first_pending - self.first_heard)

    @property
    def is_whole(self) -> bool:
        return len(self.pending) >= self.chunk_frames

    def take(self, length: int, size: int) -> list[Int16Array]:
        """Take so many frames off, padded to `size`. Any codes will do: later ones change no earlier audio."""
        frames = [self.pending.popleft() for _ in range(length)]
        return frames + frames[-1:] * (size - length)

    def unblock(self, now_s: float, frame_s: float) -> None:
        """A frame has come for which the stream was given credit, so its listener has some in hand."""
        self.is_blocked = False
        num_in_hand = min(IN_HAND_FRAMES - len(self.pending), self.first_pending - self.first_heard)
        self.dry_s = max(self.dry_s, now_s + num_in_hand * frame_s)

    def falls_silent(self, tail: int, num_frames: int, most: int) -> bool:
        """Count silent frames: `num_frames` were decoded, of which the last `tail` are silent. Return whether these
        make `most` in a row now."""
        before, self.num_silent = self.num_silent, tail + (self.num_silent if tail == num_frames else 0)
        return before < most <= self.num_silent
