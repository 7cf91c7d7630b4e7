"""How much background streams may have of a talker. Nobody listens to them, so they must not make others wait."""

from dataclasses import dataclass

# A background stream that gives way is prefilled again, and with so many a GPU is busy.
MOST_BACKGROUND_STREAMS, MOST_BACKGROUND_STREAMS_ON_CPU = 64, 4
# A step with so many rows takes hardly longer than one with few; on the CPU each row takes its time.
MOST_ROWS_WITH_BACKGROUND, MOST_ROWS_WITH_BACKGROUND_ON_CPU = 256, 0


@dataclass(frozen=True, slots=True)
class BackgroundLimits:
    most_streams: int  # that have slots
    most_rows: int  # of a step with interactive and background rows

    @classmethod
    def of(cls, num_slots: int, *, on_cuda: bool) -> "BackgroundLimits":
        most_streams = MOST_BACKGROUND_STREAMS if on_cuda else MOST_BACKGROUND_STREAMS_ON_CPU
        most_rows = MOST_ROWS_WITH_BACKGROUND if on_cuda else MOST_ROWS_WITH_BACKGROUND_ON_CPU
        return cls(max(1, min(most_streams, num_slots // 2)), most_rows)


ONE_STREAM = BackgroundLimits(most_streams=1, most_rows=0)
