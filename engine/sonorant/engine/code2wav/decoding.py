"""Makes the calls of the decoder: one after the other, and those of urgent chunks beside the one under way.

A listener is waiting for a first chunk, so that does not wait for the end of a call that began before. Nor do the next
ones if the listener would have played what came before. Where a call is over as soon as it was started, as on the CPU,
nothing is beside it.
"""

import os
from collections.abc import Callable, Sequence
from typing import Protocol

from sonorant.engine.code2wav.schedule.batcher import Batcher
from sonorant.engine.code2wav.schedule.plan import DecodePlan
from sonorant.engine.ipc.channel import RecordOutbox
from sonorant.engine.ipc.heartbeat import Step
from sonorant.engine.ipc.messages import PcmRecord
from sonorant.engine.types import Float32Array, Int16Array, PassCounts


class StartedCall(Protocol):
    def is_over(self) -> bool:
        """Say without waiting whether the samples are there."""

    def samples(self) -> Int16Array | Float32Array:
        """Wait for the samples [rows, frames * frame_samples]."""


class DecodeRunner(Protocol):
    """The part of `sonorant.engine.code2wav.run.runner.Code2WavRunner` that calls need."""

    @property
    def passes(self) -> PassCounts:
        """Passes of the network since the runner was made."""

    def reset(self, slot: int, num_frames: int) -> None:
        """Forget the stream that the slot had before; the next one begins at frame `num_frames`."""

    def copy(self, source: int, target: int) -> None:
        """Copy the state of slot `source` to slot `target`."""

    def start(self, slots: Sequence[int], codes: Int16Array) -> StartedCall:
        """Start to decode each row's frames [rows, frames, codebooks]."""

    def decode_urgent(self, slots: Sequence[int], codes: Int16Array) -> Int16Array | Float32Array:
        """Decode chunks as long as first ones, [rows, frames, codebooks], while a call of other slots is under way."""

    def remember(self, slots: Sequence[int], codes: Int16Array) -> None:
        """Take the frames into the slots' state as `start` does, without making audio."""

    def do_deferred(self) -> float | None:
        """Do a piece of what was left for later, if one is due; return in how many seconds the next one is."""


def turn(
    outbox: RecordOutbox[PcmRecord], batcher: Batcher, runner: DecodeRunner, read: Callable[[], bool] = lambda: False
) -> Step:
    """Make one call, if anything is due.

    `read` gives the batcher the records that have come meanwhile, and returns whether there were any.
    """
    plan = batcher.next_batch()
    _prepare(plan, outbox, runner)
    if not plan.slots:
        return Step(0)
    num_rows = len(plan.slots)
    if plan.is_heard:
        call = runner.start(plan.slots, plan.codes)
        may_have_more = True
        while not call.is_over():
            if may_have_more:
                num_rows += _decode_urgent(outbox, batcher, runner)
            else:
                os.sched_yield()
            may_have_more = read()
        records = batcher.apply(plan, call.samples())
    else:
        runner.remember(plan.slots, plan.codes)
        records = batcher.apply_unheard(plan)
    if records:
        outbox.publish(records)
    return Step(num_rows)


def _decode_urgent(outbox: RecordOutbox[PcmRecord], batcher: Batcher, runner: DecodeRunner) -> int:
    """Decode the urgent chunks that are there; return how many."""
    plan = batcher.urgent_batch()
    _prepare(plan, outbox, runner)
    if plan.slots:
        outbox.publish(batcher.apply(plan, runner.decode_urgent(plan.slots, plan.codes)))
    return len(plan.slots)


def _prepare(plan: DecodePlan, outbox: RecordOutbox[PcmRecord], runner: DecodeRunner) -> None:
    if plan.records:
        outbox.publish(plan.records)
    for source, target in plan.copies:
        runner.copy(source, target)
    for slot, num_frames in plan.new_slots:
        runner.reset(slot, num_frames)
