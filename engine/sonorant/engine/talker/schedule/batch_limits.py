"""How much batch streams may have of a talker. Nobody listens to these, so they must not make interactive ones wait."""

from dataclasses import dataclass

# A batch stream that gives way is prefilled again, and with so many a GPU is busy.
MOST_BATCH_STREAMS, MOST_BATCH_STREAMS_ON_CPU = 64, 4
# A step with so many rows takes hardly longer than one with few; on the CPU each row takes its time.
MOST_ROWS_WITH_BATCH, MOST_ROWS_WITH_BATCH_ON_CPU = 256, 0


@dataclass(frozen=True, slots=True)
class BatchLimits:
    most_streams: int  # that have slots
    most_rows: int  # of a step with interactive and batch rows

    @classmethod
    def of(cls, num_slots: int, *, on_cuda: bool) -> "BatchLimits":
        most_streams = MOST_BATCH_STREAMS if on_cuda else MOST_BATCH_STREAMS_ON_CPU
        most_rows = MOST_ROWS_WITH_BATCH if on_cuda else MOST_ROWS_WITH_BATCH_ON_CPU
        return cls(max(1, min(most_streams, num_slots // 2)), most_rows)


ONE_STREAM = BatchLimits(most_streams=1, most_rows=0)
