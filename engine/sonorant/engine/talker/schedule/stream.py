"""An open stream of the talker: its request, what it holds, and how far it may go."""

import sys
from dataclasses import dataclass, field, replace

import numpy as np

from sonorant.engine.ipc.messages import OpenStream
from sonorant.engine.talker.schedule.runaway import GRACE_FRAMES, Repetition, frame_limit
from sonorant.engine.types import REFERENCE_FRAME, Int16Array, PromptPlan

NEVER = sys.maxsize  # a frame number that no stream reaches
NO_SLOT = -1
NOT_WATCHED = -1  # instead of a position: the stream's positions in its text are not wanted


@dataclass(slots=True, eq=False)
class TalkerStream:
    """All that a step reads or writes is in plain fields, as a step may have a thousand streams."""

    stream_id: int
    request: OpenStream
    plan: PromptPlan  # with rows for the frames made before
    codes: Int16Array | None  # [frames, codebooks] of the reference, then of the frames made before
    first_position: int  # frame t is sampled at position first_position + t
    trailing: list[int]  # text ids after the prompt; frame t is fed trailing[t - 1]
    text_ended: bool
    granted_frames: int  # frames that may be made, from the first on
    page_keys: tuple[bytes, ...]
    frames_per_token: int  # with more, beside GRACE_FRAMES, the stream is a runaway; 0 = never
    num_text_tokens: int
    repetition: Repetition | None = None  # only of a suspect
    slot: int = NO_SLOT
    pages: tuple[int, ...] = ()
    paged_frames: int = NEVER  # its pages hold the frames below this one
    num_shared_rows: int = 0
    started_s: float = 0.0
    last_frame_s: float = 0.0
    num_rows_done: int = 0
    starved_s: float = 0.0  # when it was last STARVED
    watched: int = NOT_WATCHED  # first position of the text tracker's window
    num_frames: int = 0  # frames made, which is also the index of the next
    num_started: int = 0  # frames made or being made; kept elsewhere while it is among the `DecodingStreams`
    is_open: bool = True
    stop_at: int = field(init=False)  # frames below this one have all that they need
    _wanted: int = field(init=False)  # the same, as if there were always pages
    eos_from: int = field(init=False)  # first frame that may be the end token

    @classmethod
    def opened(cls, command: OpenStream, frames_per_token: int, pad_id: int) -> "TalkerStream":
        plan, known = command.plan, command.known_codes
        stream = cls(
            stream_id=command.stream_id,
            request=command,
            plan=plan,
            codes=command.reference_codes,
            first_position=plan.num_rows - 1,
            trailing=list(plan.trailing),
            text_ended=plan.text_ended,
            granted_frames=command.credit_frames,
            page_keys=(),
            frames_per_token=0 if command.sampling.ignore_eos else frames_per_token,
            num_text_tokens=plan.num_text_tokens,
        )
        if known is not None:
            stream._go_on_behind(known, pad_id)
        return stream

    def __post_init__(self) -> None:
        self.update_limits()

    def _go_on_behind(self, known: Int16Array, pad_id: int) -> None:
        """Append prompt rows for the frames `known` [frames, codebooks], each with the text that went in with it."""
        plan, reference, num_known = self.plan, self.codes, len(known)
        num_reference = 0 if reference is None else len(reference)
        text = self.trailing[:num_known] + [pad_id] * (num_known - len(self.trailing))
        items = range(REFERENCE_FRAME - num_reference, REFERENCE_FRAME - num_reference - num_known, -1)
        self.plan = replace(plan, text_ids=(*plan.text_ids, *text), codec_items=(*plan.codec_items, *items))
        self.codes = known if reference is None else np.concatenate([reference, known])
        self.num_frames = self.num_started = num_known
        if num_known >= (suspect_at := self.suspect_at):
            self.repetition = Repetition()
            for code in known[suspect_at:, 0].tolist():
                self.repetition.add(code)
        self.update_limits()

    @property
    def is_background(self) -> bool:
        return self.request.is_background

    @property
    def first_frame(self) -> int:
        """The first frame that is made here, not before."""
        return 0 if self.request.known_codes is None else len(self.request.known_codes)

    def update_limits(self) -> None:
        sampling = self.request.sampling
        text_limit = NEVER if self.text_ended else len(self.trailing) + 1
        self._wanted = min(self.granted_frames, text_limit, sampling.max_frames, self.suspect_at, self.runaway_at)
        self.stop_at = min(self._wanted, self.paged_frames)
        # All text that comes in pieces goes in before the end, so that no frame depends on when its end is told. A text
        # that came whole may end before, as in the official package.
        end_of_text = len(self.trailing) + 1 if self.plan.began_open else 0
        self.eos_from = NEVER if sampling.ignore_eos else max(sampling.min_frames, end_of_text)

    @property
    def has_text(self) -> bool:
        """Whether the next frame has a text id, or needs none."""
        return self.text_ended or self.num_frames <= len(self.trailing)

    @property
    def lacks_pages(self) -> bool:
        """Whether the next frame has all that it needs but a page."""
        return self.paged_frames <= self.num_frames < self._wanted

    @property
    def num_positions(self) -> int:
        """How many positions it needs, unless more text comes or it becomes a suspect.

        `max_frames` includes frames that were made before.
        """
        return self.request.plan.num_rows + min(self.request.sampling.max_frames, self.suspect_at, self.runaway_at)

    @property
    def runaway_at(self) -> int:
        if not self.frames_per_token:
            return NEVER
        # The frames up to min_frames, which the caller asked for, are no sign of a runaway.
        return max(
            frame_limit(self.frames_per_token, self.num_text_tokens), self.request.sampling.min_frames + GRACE_FRAMES
        )

    @property
    def suspect_at(self) -> int:
        return max(self.runaway_at // 2, self.request.sampling.min_frames) if self.repetition is None else NEVER
