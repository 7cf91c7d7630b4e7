"""Plans of scheduler and batcher are applied once and in order; anything else is refused and changes nothing."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonorant.engine.code2wav.schedule.plan import DecodePlan
from sonorant.engine.config import EngineConfig
from sonorant.engine.ipc.messages import FrameBatch, FrameRecord, PcmBatch, PcmRecord
from sonorant.engine.talker.schedule.rows import StepPlan
from sonorant.engine.talker.schedule.scheduler import Scheduler
from sonorant.engine.types import Int16Array
from tests.engine.code2wav.hand_driven import Decoder, codes_of, end
from tests.engine.code2wav.hand_driven import frames as frames_of
from tests.fakes import (
    FakeClock,
    FakeTalkerRunner,
    begin_stream,
    expected_codes,
    expected_pcm,
    open_stream,
    published_checkpoint,
)

CHECKPOINT = published_checkpoint()
STREAM_IDS = (1, 2, 3)

# "apply": a plan that may be applied now; "again": any plan that was ever made, or an equal one that was not made there
actions = st.lists(
    st.tuples(st.sampled_from(["plan", "plan", "apply", "again", "copy"]), st.integers(0, 20)), min_size=20, max_size=60
)


class Steps:
    """A scheduler and its runner, as far as a step ahead; what it is asked beside that must fail."""

    def __init__(self) -> None:
        config = EngineConfig.of(model=CHECKPOINT.folder, num_slots=2, page_size=4, max_prefill_rows=6, max_context=64)
        self.scheduler = Scheduler(config, CHECKPOINT, 30, FakeClock())
        self._runner = FakeTalkerRunner(CHECKPOINT, config, 30)
        self._made: list[tuple[StepPlan, Int16Array]] = []
        self._num_applied = 0
        self.commands = [open_stream(each, num_rows=3 * each, text_ended=True, max_frames=5) for each in STREAM_IDS]
        self.codes: dict[int, list[list[int]]] = defaultdict(list)
        for command in self.commands:
            self.scheduler.on_record(command)

    def plan(self) -> None:
        if len(self._made) - self._num_applied == 2:
            with pytest.raises(RuntimeError, match="results of 2"):
                self.scheduler.next_step()
            return
        plan = self.scheduler.next_step()
        self._take(plan.records)
        if plan.has_rows:
            for slot, pages in plan.pages:
                self._runner.assign(slot, pages)
            self._made.append((plan, self._runner.step(plan.prefills, plan.decodes)))

    def apply(self) -> None:
        if self._num_applied < len(self._made):
            plan, codes = self._made[self._num_applied]
            self._num_applied += 1
            self._take(self.scheduler.apply(plan, codes))
            self.scheduler.check_conservation()

    def apply_wrongly(self, index: int, *, to_copy: bool) -> None:
        """Apply the result of a plan that was applied before or comes later; of any if it is a copy."""
        if index >= len(self._made) or (index == self._num_applied and not to_copy):
            return
        plan, codes = self._made[index]
        with pytest.raises(RuntimeError, match="twice, out of order"):
            self.scheduler.apply(replace(plan) if to_copy else plan, codes)
        self.scheduler.check_conservation()

    def _take(self, records: Sequence[FrameRecord]) -> None:
        for record in records:
            if isinstance(record, FrameBatch):
                for stream_id, codes in zip(record.stream_ids.tolist(), record.codes.tolist(), strict=True):
                    self.codes[stream_id].append(codes)


@settings(max_examples=30)
@given(actions)
def test_each_step_is_applied_once_and_in_order(actions: list[tuple[str, int]]) -> None:
    steps = Steps()
    for action, index in actions:
        match action:
            case "plan":
                steps.plan()
            case "apply":
                steps.apply()
            case _:
                steps.apply_wrongly(index, to_copy=action == "copy")
    while steps.scheduler.num_streams:
        steps.apply()
        steps.plan()
    for command in steps.commands:
        assert steps.codes[command.stream_id] == expected_codes(CHECKPOINT, command, ())[0].tolist()


def test_a_step_is_located_once_and_before_its_result() -> None:
    steps = Steps()
    first = steps.scheduler.next_step()
    steps.scheduler.locate(first, None)
    with pytest.raises(RuntimeError, match="located twice"):
        steps.scheduler.locate(first, None)
    steps.scheduler.apply(first, np.zeros((len(first.stream_ids), 16), np.int16))
    with pytest.raises(RuntimeError, match="between the result before its own"):
        steps.scheduler.locate(first, None)


class Calls:
    """A batcher with one call under way, and an urgent one beside it; what it is asked beside that must fail."""

    def __init__(self) -> None:
        self.decoder = Decoder(num_slots=len(STREAM_IDS), chunk_ramp=(1, 2))
        self._made: list[tuple[DecodePlan, Int16Array]] = []
        self._open: list[int] = []  # places in `_made` of the calls under way
        self._num_frames = 0
        self.pcm: dict[int, list[int]] = defaultdict(list)
        self.decoder.send(*(begin_stream(each) for each in STREAM_IDS))

    def plan(self, is_urgent: bool) -> None:
        batcher = self.decoder.batcher
        make = batcher.urgent_batch if is_urgent else batcher.next_batch
        if any(self._made[place][0].is_urgent == is_urgent for place in self._open):
            with pytest.raises(RuntimeError, match="results of 1"):
                make()
            return
        if self._num_frames < 6:
            self.decoder.send(frames_of(self._num_frames, *STREAM_IDS))
            self._num_frames += 1
        self.decoder.clock.now_s += 0.05
        plan = make()
        for slot, num_frames in plan.new_slots:
            self.decoder.runner.reset(slot, num_frames)
        self._take(plan.records)
        if plan.slots:
            self._open.append(len(self._made))
            self._made.append((plan, self.decoder.runner.decode(plan.slots, plan.codes)))

    def apply(self, index: int) -> None:
        if self._open:
            plan, samples = self._made[self._open.pop(index % len(self._open))]
            self._take(self.decoder.batcher.apply(plan, samples))
            self.decoder.batcher.check_conservation()

    def apply_wrongly(self, index: int, *, to_copy: bool) -> None:
        if index >= len(self._made) or (index in self._open and not to_copy):
            return
        plan, samples = self._made[index]
        with pytest.raises(RuntimeError, match="twice, out of order"):
            self.decoder.batcher.apply(replace(plan) if to_copy else plan, samples)
        with pytest.raises(RuntimeError, match="only to be remembered"):
            self.decoder.batcher.apply_unheard(plan)
        self.decoder.batcher.check_conservation()

    def finish(self) -> None:
        while self._open:
            self.apply(0)
        for index in range(self._num_frames, 6):
            self.decoder.send(frames_of(index, *STREAM_IDS))
        self.decoder.send(*map(end, STREAM_IDS))
        while records := self.decoder.turn():
            self._take(records)

    def _take(self, records: Sequence[PcmRecord]) -> None:
        for record in records:
            if isinstance(record, PcmBatch):
                for stream_id, samples in zip(record.stream_ids.tolist(), record.samples.tolist(), strict=True):
                    self.pcm[stream_id] += samples


@settings(max_examples=30)
@given(actions)
def test_each_call_is_applied_once(actions: list[tuple[str, int]]) -> None:
    calls = Calls()
    for action, index in actions:
        match action:
            case "plan":
                calls.plan(is_urgent=index % 2 == 1)
            case "apply":
                calls.apply(index)
            case _:
                calls.apply_wrongly(index, to_copy=action == "copy")
    calls.finish()
    for stream_id in STREAM_IDS:
        codes = np.stack([codes_of(stream_id, index) for index in range(6)])
        assert calls.pcm[stream_id] == expected_pcm(codes).tolist()
