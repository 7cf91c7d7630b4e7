"""Runs the steps of the scheduler on the runner, one after the other without a pause.

The device must not wait for decisions in between. With many streams, these and the way to the device take a notable
part of a step. So a step is started shortly before the one before it is over, without knowing the result of that. The
price: a command that comes in this moment has to wait for one step more. With few streams nothing is decided ahead, as
the listener who waits for first audio would notice more of that than anybody gains.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from sonorant.engine.ipc.channel import RecordOutbox
from sonorant.engine.ipc.heartbeat import Step
from sonorant.engine.ipc.messages import FrameRecord
from sonorant.engine.talker.schedule.rows import DecodeRows, PrefillRow, StepPlan
from sonorant.engine.talker.schedule.scheduler import Scheduler
from sonorant.engine.types import Float32Array, Int16Array, PassCounts

MANY_STREAMS = 32


class StepRunner(Protocol):
    """The part of `sonorant.engine.talker.run.runner.TalkerRunner` that steps need."""

    @property
    def passes(self) -> PassCounts:
        """Passes of the network since the runner was made."""

    @property
    def is_asynchronous(self) -> bool:
        """Whether `start` returns while the device computes, and a second step may be started behind the first."""

    def assign(self, slot: int, pages: Sequence[int]) -> None:
        """Give a slot these pages, from position 0 on, in place of those it had."""

    def start(self, prefills: Sequence[PrefillRow], decodes: DecodeRows) -> None:
        """Start a step."""

    @property
    def text_logits(self) -> Float32Array | None:
        """Attention logits of the step started last, [decode rows that are watched, WINDOW]; see the runner."""

    def wait_until_nearly_over(self) -> None:
        """Wait until the step started last is nearly over."""

    def do_deferred(self) -> float | None:
        """Do a piece of what was left for later, if one is due; return in how many seconds the next one is."""

    def finish(self) -> Int16Array:
        """Return codes [rows that sample, codebooks] of the step started first, prefills first; a row that cannot be
        drawn begins with BROKEN."""


class Stepping:
    def __init__(
        self,
        outbox: RecordOutbox[FrameRecord],
        scheduler: Scheduler,
        runner: StepRunner,
        ahead_from: int = MANY_STREAMS,
    ) -> None:
        """`ahead_from`: with so many streams or more, the next step is decided before the result of this one."""
        self._outbox = outbox
        self._scheduler = scheduler
        self._runner = runner
        self._ahead_from = ahead_from
        self._under_way: StepPlan | None = None

    def turn(self, meanwhile: Callable[[], None] = lambda: None) -> Step:
        """Run one step, if there are rows for one; return what was started. Its result may come with the next turn.

        `meanwhile`: what can be done while the device computes.
        """
        scheduler, runner = self._scheduler, self._runner
        plan = scheduler.next_step()
        if not plan.has_rows and self._under_way is not None:  # its result may let streams go on
            self._publish(plan.records)
            self._finish()
            plan = scheduler.next_step()
        if not runner.is_asynchronous:
            self._publish(plan.records)  # beginnings and ends do not wait for the step
        if plan.has_rows:
            for slot, pages in plan.pages:
                runner.assign(slot, pages)
            runner.start(plan.prefills, plan.decodes)
        if runner.is_asynchronous:
            self._publish(plan.records)
        self._finish()
        if not plan.has_rows:
            return Step(0)
        self._under_way = plan
        meanwhile()
        if plan.stream_ids:
            scheduler.locate(plan, runner.text_logits)
        if runner.is_asynchronous and len(plan.stream_ids) >= self._ahead_from:
            runner.wait_until_nearly_over()
        else:
            self._finish()
        return Step(
            num_rows=len(plan.prefills) + len(plan.decodes),
            num_prompt_rows=sum(row.stop - row.start for row in plan.prefills),
            num_shared_rows=sum(row.num_shared_rows for row in plan.prefills if row.begins),
        )

    def _finish(self) -> None:
        """Finish the step under way, if there is one."""
        if self._under_way is not None:
            plan, self._under_way = self._under_way, None
            self._publish(self._scheduler.apply(plan, self._runner.finish()))

    def _publish(self, records: Sequence[FrameRecord]) -> None:
        if records:
            self._outbox.publish(records)
