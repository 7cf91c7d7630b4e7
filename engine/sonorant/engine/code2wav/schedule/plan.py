"""What one call decodes, and which records its audio makes. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sonorant.engine.code2wav.schedule.chunks import rows_of_equal_length
from sonorant.engine.ipc.messages import PcmBatch, PcmRecord
from sonorant.engine.types import Float32Array, Int16Array

NO_CODES = np.empty((0, 0, 0), np.int16)


@dataclass(frozen=True, slots=True)
class DecodePlan:
    """What to do now: publish `records`, make `copies`, reset `new_slots`; then, if there are `slots`, decode `codes`,
    or only remember them where `is_heard` is False, and apply the result, once."""

    records: Sequence[PcmRecord]
    copies: Sequence[tuple[int, int]]  # (source, target) slots; copy the state in this order
    new_slots: Sequence[tuple[int, int]]  # (slot, number of frames that are skipped in it)
    slots: Sequence[int]
    is_heard: bool
    codes: Int16Array  # [rows, frames, codebooks]
    stream_ids: Sequence[int]  # of the rows
    first_frames: Sequence[int]  # the number of the first frame of each row; negative in a reference
    lengths: Sequence[int]  # the frames of each row, most first; what follows in `codes` is padding
    began_s: float
    is_urgent: bool = False  # beside another call

    def audio(
        self, samples: Int16Array | Float32Array
    ) -> Iterator[tuple[slice, PcmBatch]]:  # [rows, frames * frame_samples]
        """The audio without padding: rows that are equally long make one record, beside which its rows are named."""
        size = self.codes.shape[1]
        for rows in rows_of_equal_length(self.lengths):
            num_frames = self.lengths[rows.start]
            yield (
                rows,
                PcmBatch(
                    stream_ids=np.array(self.stream_ids[rows], np.int64),
                    first_frames=np.array(self.first_frames[rows], np.int32),
                    num_frames=num_frames,
                    samples=samples[rows, : samples.shape[1] * num_frames // size],
                    codes=self.codes[rows, :num_frames],
                ),
            )
