"""A batcher driven by hand, for tests, with frames whose codes tell their stream and number."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sonorant.engine.code2wav.schedule.batcher import Batcher, FrameStreamRecord
from sonorant.engine.code2wav.schedule.context import DecoderContext
from sonorant.engine.code2wav.schedule.plan import NO_CODES, DecodePlan
from sonorant.engine.config import EngineConfig
from sonorant.engine.ipc.messages import (
    EndServer,
    EndStream,
    FirstChunk,
    FrameBatch,
    PcmBatch,
    PcmRecord,
)
from sonorant.engine.types import FinishReason, Int16Array, StreamEnd
from tests.fakes import CONTEXT, FakeClock, FakeCode2WavRunner, frame_batch, published_checkpoint

FRAME_S = 0.08
MODEL = published_checkpoint().folder


def codes_of(stream_id: int, index: int) -> Int16Array:
    return np.arange(16, dtype=np.int16) + 16 * index + 500 * stream_id


def frames(index: int, *stream_ids: int, step_s: float = 0.0) -> FrameBatch:
    """Frame `index` of each stream, made by a step that took so long."""
    codes = np.stack([codes_of(stream_id, index) for stream_id in stream_ids])
    return replace(frame_batch(stream_ids, [index] * len(stream_ids), codes), ended_s=step_s)


def end(stream_id: int, reason: FinishReason = FinishReason.COMPLETED) -> EndStream:
    return EndStream(stream_id, StreamEnd(reason, 0, 0.0, 0.0))


def rows(records: Sequence[PcmBatch | EndStream]) -> list[tuple[int, ...]]:
    """(stream, first frame, frames) of a row; (stream,) of an end."""
    found: list[tuple[int, ...]] = []
    for record in records:
        if isinstance(record, EndStream):
            found.append((record.stream_id,))
        else:
            each = zip(record.stream_ids.tolist(), record.first_frames.tolist(), strict=True)
            found += [(stream_id, first, record.num_frames) for stream_id, first in each]
    return found


class Decoder:
    """A batcher with the fake runner behind it."""

    def __init__(
        self,
        *,
        num_slots: int = 4,
        chunk_ramp: tuple[int, ...] = (1, 2, 4),
        max_decode_batch: int = 8,
        num_talker_slots: int = 1,
        kept_references: int = 2,
        stored_streams: int = 1,
        context: DecoderContext = CONTEXT,
        pass_sizes: Sequence[int] = (),
    ) -> None:
        """`pass_sizes`: if not those of CUDA, which are the sizes of the ramp and 1."""
        config = EngineConfig.of(
            model=MODEL,
            num_slots=num_talker_slots,
            chunk_ramp=chunk_ramp,
            max_decode_batch=max_decode_batch,
            kept_references=kept_references,
            stored_streams=stored_streams,
        )
        self.clock = FakeClock()
        self.pass_sizes = pass_sizes or sorted({1, *chunk_ramp})
        self.batcher = Batcher(config, num_slots, FRAME_S, context, self.pass_sizes, self.clock)
        self.runner = FakeCode2WavRunner(config, num_slots)
        self.plan = DecodePlan([], [], [], [], True, NO_CODES, [], [], [], 0.0)
        self.samples: Int16Array | None = None  # of the call that was started
        self.first_told: list[FirstChunk] = []
        self.servers_ended: list[int] = []

    def send(self, *records: FrameStreamRecord) -> None:
        for record in records:
            self.batcher.on_record(record)

    def turn(self) -> list[PcmBatch | EndStream]:
        """Make a call; audio and ends. What is told of first chunks and server processes is kept aside."""
        return self.start() + self.finish()

    def start(self) -> list[PcmBatch | EndStream]:
        """Start a call, if anything is due; `finish` is to follow."""
        self.plan = self.batcher.next_batch()
        if self.plan.slots and self.plan.is_heard:
            assert self.plan.codes.shape[1] in self.pass_sizes
        records = self._prepared(self.plan)
        if self.plan.slots:
            decode = self.runner.decode if self.plan.is_heard else self.runner.remember
            self.samples = decode(self.plan.slots, self.plan.codes)
        return self._checked(records)

    def finish(self) -> list[PcmBatch | EndStream]:
        """Finish the call that was started."""
        records = list[PcmRecord]()
        if self.plan.slots and self.plan.is_heard:
            assert self.samples is not None
            records = self.batcher.apply(self.plan, self.samples)
        elif self.plan.slots:
            records = self.batcher.apply_unheard(self.plan)
        return self._checked(records)

    def urgent(self) -> list[PcmBatch | EndStream]:
        """Decode urgent chunks beside the call that was started."""
        plan = self.batcher.urgent_batch()
        records = self._prepared(plan)
        if plan.slots:
            assert not set(plan.slots) & set(self.plan.slots)
            records += self.batcher.apply(plan, self.runner.decode(plan.slots, plan.codes))
        return self._checked(records)

    def _prepared(self, plan: DecodePlan) -> list[PcmRecord]:
        for source, target in plan.copies:
            self.runner.copy(source, target)
        for slot, num_frames in plan.new_slots:
            self.runner.reset(slot, num_frames)
        return list(plan.records)

    def _checked(self, records: Sequence[PcmRecord]) -> list[PcmBatch | EndStream]:
        self.batcher.check_conservation()
        self.first_told += [record for record in records if isinstance(record, FirstChunk)]
        self.servers_ended += [record.server for record in records if isinstance(record, EndServer)]
        return [record for record in records if isinstance(record, PcmBatch | EndStream)]

    def drain(self) -> list[PcmBatch | EndStream]:
        """What the turns give until there is nothing to decode."""
        found = self.turn()
        while self.plan.slots:
            found += self.turn()
        return found

    def chunks(self) -> list[tuple[int, ...]]:
        """What the turns give until nothing is due, as `rows`."""
        found: list[tuple[int, ...]] = []
        while records := self.turn():
            found += rows(records)
        return found
