"""The rows of a step as values, which the scheduler hands to the runner."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, overload

import numpy as np

from sonorant.engine.ipc.messages import FrameRecord
from sonorant.engine.talker.schedule.stream import NOT_WATCHED, TalkerStream
from sonorant.engine.types import Float32Array, Int16Array, Int64Array, PromptPlan, SamplingParams

BROKEN = -1  # the first code of a row whose scores are not finite; its other codes mean nothing


@dataclass(frozen=True, slots=True)
class PrefillRow:
    """Rows start:stop of a prompt. If stop == plan.num_rows the row also samples frame `first_frame`."""

    slot: int
    pages: tuple[int, ...]
    plan: PromptPlan
    start: int
    stop: int
    sampling: SamplingParams
    x_vector: Float32Array | None  # [hidden]
    reference_codes: Int16Array | None  # [frames, codebooks] of the reference, then of `first_frame` frames made before
    allow_eos: bool
    first_frame: int = 0
    num_shared_rows: int = 0  # rows of the prompt that are in shared pages already

    @classmethod
    def of(cls, stream: TalkerStream, start: int, stop: int) -> "PrefillRow":
        return cls(
            slot=stream.slot,
            pages=stream.pages,
            plan=stream.plan,
            start=start,
            stop=stop,
            sampling=stream.request.sampling,
            x_vector=stream.request.x_vector,
            reference_codes=stream.codes,
            allow_eos=stream.num_frames >= stream.eos_from,
            first_frame=stream.num_frames,
            num_shared_rows=stream.num_shared_rows,
        )

    @property
    def begins(self) -> bool:
        """Whether these are the first rows of a stream, for which the slot must be reset."""
        return self.start == self.num_shared_rows

    @property
    def known_codes(self) -> Int16Array | None:
        """Codes of the stream's own frames that were made before, [first_frame, codebooks]."""
        return (
            None if self.reference_codes is None or not self.first_frame else self.reference_codes[-self.first_frame :]
        )

    @property
    def samples(self) -> bool:
        return self.stop == self.plan.num_rows


class DecodeRow(NamedTuple):
    """Feeds the slot's last frame and `text_id` at `position`, then samples frame `frame_index`."""

    slot: int
    text_id: int
    position: int
    frame_index: int
    allow_eos: bool
    watched: int = NOT_WATCHED  # first of the WINDOW positions for which the alignment head's logits are wanted


@dataclass(frozen=True, slots=True)
class DecodeRows(Sequence[DecodeRow]):
    """Decode rows as columns, since a step may have two thousand of them."""

    columns: Int64Array  # [fields of DecodeRow, rows]

    @classmethod
    def of(cls, rows: Sequence[DecodeRow]) -> "DecodeRows":
        if isinstance(rows, DecodeRows):
            return rows
        return cls(np.array(rows, np.int64).reshape(len(rows), len(DecodeRow._fields)).T)

    def __len__(self) -> int:
        return len(self.columns[0])

    @overload
    def __getitem__(self, index: int) -> DecodeRow: ...
    @overload
    def __getitem__(self, index: slice) -> "DecodeRows": ...
    def __getitem__(self, index: int | slice) -> "DecodeRow | DecodeRows":
        if isinstance(index, slice):
            return DecodeRows(self.columns[:, index])
        slot, text_id, position, frame_index, allow_eos, watched = self.columns[:, index].tolist()
        return DecodeRow(slot, text_id, position, frame_index, bool(allow_eos), watched)


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What to do now: publish `records`, then run the rows and apply their result, once."""

    records: Sequence[FrameRecord]
    prefills: Sequence[PrefillRow]
    decodes: DecodeRows
    stream_ids: Sequence[int]  # of the streams that sample, in row order: prefills first
    began_s: float
    pages: Sequence[tuple[int, tuple[int, ...]]] = ()  # slots whose streams were given more, with all that they have

    @property
    def has_rows(self) -> bool:
        return bool(self.prefills) or len(self.decodes) > 0
