"""A scheduler driven by hand, for tests: every row samples the code that the test says."""

from collections.abc import Sequence

import numpy as np

from sonorant.engine.config import EngineConfig
from sonorant.engine.ipc.messages import EndStream, FrameRecord
from sonorant.engine.talker.schedule.admission import ONE_STREAM, BackgroundLimits
from sonorant.engine.talker.schedule.rows import DecodeRows, StepPlan
from sonorant.engine.talker.schedule.scheduler import Scheduler, StreamCommand
from sonorant.engine.types import FinishReason
from tests.fakes import FakeClock, published_checkpoint

CHECKPOINT = published_checkpoint()
PAD = CHECKPOINT.text_ids.tts_pad
EOS = CHECKPOINT.talker.codec_eos_id


class Talker:
    def __init__(
        self,
        *,
        num_slots: int = 4,
        num_pages: int = 64,
        max_context: int = 256,
        background_limits: BackgroundLimits = ONE_STREAM,
        **config_fields: int,
    ) -> None:
        config = EngineConfig.of(CHECKPOINT.folder, num_slots=num_slots, max_context=max_context, **config_fields)
        self.clock = FakeClock()
        self.scheduler = Scheduler(config, CHECKPOINT, num_pages, self.clock, background_limits)
        self.plan = StepPlan([], [], DecodeRows.of([]), [], 0.0)

    def send(self, *commands: StreamCommand) -> None:
        for command in commands:
            self.scheduler.on_record(command)

    def step(self, code: int = 7) -> list[FrameRecord]:
        """All records of one turn."""
        self.plan = self.scheduler.next_step()
        rows = sum(row.samples for row in self.plan.prefills) + len(self.plan.decodes)
        records = list(self.plan.records)
        if self.plan.has_rows:
            records += self.scheduler.apply(self.plan, np.full((rows, 16), code, np.int16))
        self.scheduler.check_conservation()
        return records

    @property
    def fed(self) -> list[int]:
        return [row.text_id for row in self.plan.decodes]


def kinds(records: Sequence[FrameRecord]) -> list[type]:
    return [type(record) for record in records]


def ends(records: Sequence[FrameRecord]) -> list[tuple[int, FinishReason]]:
    return [(record.stream_id, record.end.reason) for record in records if isinstance(record, EndStream)]
