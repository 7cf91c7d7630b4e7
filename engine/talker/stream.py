"""One open stream of the talker: what it asked for, what it has, and how far it may go."""

import sys
from dataclasses import dataclass, field

from engine.ipc.messages import OpenStream
from engine.talker.runaway import GRACE_FRAMES, Repetition, frame_limit

NEVER = sys.maxsize  # a frame number that no stream reaches
NO_SLOT = -1


@dataclass(slots=True, eq=False)
class Stream:
    """Whatever a step reads or writes is a plain field: there are a thousand of these per step."""

    stream_id: int
    open: OpenStream
    first_position: int  # frame t is sampled there + t
    trailing: list[int]  # text ids after the prompt; frame t is fed trailing[t - 1]
    text_ended: bool
    granted_frames: int  # frames that may be made, from the first on
    page_keys: tuple[bytes, ...]
    frames_per_token: int  # beyond which it is a runaway; 0 = never
    num_text_tokens: int
    repetition: Repetition | None = None  # of a suspect
    slot: int = NO_SLOT
    pages: tuple[int, ...] = ()
    num_shared_rows: int = 0
    started_s: float = 0.0
    last_frame_s: float = 0.0
    num_rows_done: int = 0
    num_frames: int = 0  # frames made, which is also the index of the next
    stop_at: int = field(init=False)  # frames below this need nothing that is not there
    eos_from: int = field(init=False)  # first frame that may be the end token

    def __post_init__(self) -> None:
        self.update_limits()

    def update_limits(self) -> None:
        sampling = self.open.sampling
        text_limit = NEVER if self.text_ended else len(self.trailing) + 1
        self.stop_at = min(self.granted_frames, text_limit, sampling.max_frames, self.suspect_at, self.runaway_at)
        self.eos_from = sampling.min_frames if self.text_ended and not sampling.ignore_eos else NEVER

    @property
    def runaway_at(self) -> int:
        if not self.frames_per_token:
            return NEVER
        # Frames that the caller wants at least are no sign of anything.
        return max(
            frame_limit(self.frames_per_token, self.num_text_tokens), self.open.sampling.min_frames + GRACE_FRAMES
        )

    @property
    def suspect_at(self) -> int:
        return max(self.runaway_at // 2, self.open.sampling.min_frames) if self.repetition is None else NEVER
