from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import EngineConfig
from engine.ipc.messages import (
    BeginStream,
    CancelStream,
    EndStream,
    EndText,
    FlushStream,
    FrameBatch,
    FrameRecord,
    GrantCredit,
    OpenStream,
    PushText,
)
from engine.talker.rows import StepPlan
from engine.talker.scheduler import Scheduler
from engine.types import FinishReason
from tests.fakes import FakeClock, FakeTalkerRunner, expected_codes, open_stream, published_checkpoint

CHECKPOINT = published_checkpoint()
PAD = CHECKPOINT.text_ids.tts_pad
EOS = CHECKPOINT.talker.codec_eos_id


class Talker:
    """A scheduler with hand-made results: every row samples code 7 unless told otherwise."""

    def __init__(self, *, num_slots: int = 4, num_pages: int = 64, max_prefill_rows: int = 512) -> None:
        config = EngineConfig(
            model=CHECKPOINT.folder, num_slots=num_slots, max_prefill_rows=max_prefill_rows, max_context=256
        )
        self.clock = FakeClock()
        self.scheduler = Scheduler(config, CHECKPOINT, num_pages, self.clock)
        self.plan = StepPlan([], [], [])

    def send(self, *commands: OpenStream | PushText | EndText | GrantCredit | CancelStream) -> None:
        for command in commands:
            self.scheduler.on_record(command)

    def step(self, code: int = 7) -> list[FrameRecord]:
        """All records of one turn."""
        self.plan = self.scheduler.next_step()
        rows = sum(row.samples for row in self.plan.prefills) + len(self.plan.decodes)
        records = list(self.plan.records)
        if self.plan.has_rows:
            records += self.scheduler.apply(np.full((rows, 16), code, np.int16))
        self.scheduler.check_conservation()
        return records

    @property
    def fed(self) -> list[int]:
        return [row.text_id for row in self.plan.decodes]


def kinds(records: Sequence[FrameRecord]) -> list[type]:
    return [type(record) for record in records]


def ends(records: Sequence[FrameRecord]) -> list[tuple[int, FinishReason]]:
    return [(record.stream_id, record.end.reason) for record in records if isinstance(record, EndStream)]


def test_first_step_prefills_and_makes_frame_0() -> None:
    talker = Talker()
    talker.send(open_stream(5, num_rows=9, max_frames=20, trailing=(11,)))
    records = talker.step()
    (row,) = talker.plan.prefills
    assert (row.start, row.stop, len(row.pages), row.allow_eos) == (0, 9, 2, False)
    assert kinds(talker.plan.records) == [BeginStream]
    assert kinds(records) == [BeginStream, FrameBatch]
    assert isinstance(records[1], FrameBatch)
    assert (records[1].stream_ids.tolist(), records[1].frame_indices.tolist()) == ([5], [0])
    assert records[1].codes.shape == (1, 16)


def test_text_is_fed_one_id_per_frame_then_pad() -> None:
    talker = Talker()
    talker.send(open_stream(1, num_rows=9, trailing=(11, 12)), EndText(1))
    talker.step()
    seen = []
    for _ in range(4):
        talker.step()
        (row,) = talker.plan.decodes
        seen.append((row.text_id, row.position, row.frame_index))
    assert seen == [(11, 9, 1), (12, 10, 2), (PAD, 11, 3), (PAD, 12, 4)]


def test_a_starved_stream_is_flushed_once_not_stepped_and_resumes_with_text() -> None:
    talker = Talker()
    talker.send(open_stream(1, trailing=(11,)))
    assert kinds(talker.step()) == [BeginStream, FrameBatch]
    assert kinds(talker.step()) == [FrameBatch, FlushStream]
    assert talker.step() == [] and not talker.plan.has_rows
    talker.send(PushText(1, (12, 13)))
    assert kinds(talker.step()) == [FrameBatch] and talker.fed == [12]
    assert kinds(talker.step()) == [FrameBatch, FlushStream] and talker.fed == [13]
    talker.send(EndText(1))
    assert kinds(talker.step()) == [FrameBatch] and talker.fed == [PAD]


def test_a_blocked_stream_is_flushed_once_not_stepped_and_resumes_with_credit() -> None:
    talker = Talker()
    talker.send(open_stream(1, text_ended=True, credit_frames=2))
    assert kinds(talker.step()) == [BeginStream, FrameBatch]
    assert kinds(talker.step()) == [FrameBatch, FlushStream]
    assert talker.step() == []
    talker.send(GrantCredit(1, 1))
    assert kinds(talker.step()) == [FrameBatch, FlushStream]
    assert talker.step() == []


def test_a_stream_without_text_and_credit_needs_both_and_is_flushed_once() -> None:
    talker = Talker()
    talker.send(open_stream(1, credit_frames=1))
    assert kinds(talker.step()) == [BeginStream, FrameBatch, FlushStream]
    talker.send(PushText(1, (11,)))
    assert talker.step() == []
    talker.send(GrantCredit(1, 2))
    assert kinds(talker.step()) == [FrameBatch, FlushStream]
    talker.send(GrantCredit(1, 1))
    assert talker.step() == []
    talker.send(EndText(1))
    assert kinds(talker.step()) == [FrameBatch] and talker.fed == [PAD]


def test_the_end_token_is_banned_while_text_may_come_and_for_min_frames() -> None:
    talker = Talker()
    talker.send(open_stream(1, trailing=(11, 12, 13), min_frames=2), open_stream(2, text_ended=True, ignore_eos=True))
    talker.send(open_stream(3, text_ended=True, min_frames=2), open_stream(4, text_ended=True))
    talker.step()
    assert [row.allow_eos for row in talker.plan.prefills] == [False, False, False, True]
    talker.step()
    assert [row.allow_eos for row in talker.plan.decodes] == [False, False, False, True]
    talker.step()
    assert [row.allow_eos for row in talker.plan.decodes] == [False, False, True, True]
    talker.send(EndText(1))
    talker.step()
    assert [row.allow_eos for row in talker.plan.decodes] == [True, False, True, True]


def test_the_end_token_ends_the_stream_and_is_no_frame() -> None:
    talker = Talker()
    talker.send(open_stream(1, text_ended=True), open_stream(2, text_ended=True))
    talker.step()
    records = talker.step(code=EOS)
    assert kinds(records) == [EndStream, EndStream]
    assert ends(records) == [(1, FinishReason.COMPLETED), (2, FinishReason.COMPLETED)]
    assert isinstance(records[0], EndStream) and records[0].end.num_frames == 1
    assert talker.scheduler.num_streams == 0 and not talker.scheduler.next_step().has_rows


def test_the_end_token_in_frame_0_ends_a_stream_of_no_frames() -> None:
    talker = Talker()
    talker.send(open_stream(1, text_ended=True))
    records = talker.step(code=EOS)
    assert kinds(records) == [BeginStream, EndStream]


def test_max_frames_is_the_number_of_frames_out() -> None:
    talker = Talker()
    talker.send(open_stream(1, text_ended=True, max_frames=3))
    made = [talker.step() for _ in range(3)]
    assert kinds(made[1]) == [FrameBatch]
    assert kinds(made[2]) == [FrameBatch, EndStream]
    assert ends(made[2]) == [(1, FinishReason.MAX_FRAMES)]
    assert talker.step() == []


def test_a_cancel_takes_effect_at_the_next_step_in_every_state() -> None:
    talker = Talker(num_slots=4, max_prefill_rows=16)
    talker.send(open_stream(1, text_ended=True), open_stream(2, credit_frames=1, text_ended=True), open_stream(3))
    talker.step()
    talker.step()
    # 1 decodes, 2 is blocked, 3 is starved, 4 is in the middle of its prompt, 5 waits for a slot
    talker.send(open_stream(4, num_rows=40, text_ended=True), open_stream(5))
    talker.step()
    assert [row.stop for row in talker.plan.prefills] == [16]
    talker.send(*(CancelStream(stream_id) for stream_id in (1, 2, 3, 4, 5)))
    records = talker.step()
    assert not talker.plan.has_rows
    assert ends(records) == [(stream_id, FinishReason.CANCELLED) for stream_id in (1, 2, 3, 4, 5)]
    talker.send(PushText(1, (9,)), EndText(2), GrantCredit(3, 8), CancelStream(4))
    assert talker.step() == []
    assert talker.scheduler.num_streams == 0


def test_a_freed_slot_and_its_pages_are_used_in_the_very_next_step() -> None:
    talker = Talker(num_slots=1, num_pages=2)
    talker.send(open_stream(1, text_ended=True), open_stream(2, text_ended=True))
    talker.step()
    assert len(talker.plan.prefills) == 1
    talker.send(CancelStream(1))
    records = talker.step()
    assert kinds(records) == [EndStream, BeginStream, FrameBatch]


def test_admission_is_first_come_first_served() -> None:
    """The second stream fits into the pages that are left, but the first must not wait for ever."""
    talker = Talker(num_pages=8)
    talker.send(open_stream(1, num_rows=40, max_frames=40, text_ended=True))  # 5 pages
    talker.step()
    talker.send(open_stream(2, num_rows=40, max_frames=40, text_ended=True), open_stream(3, text_ended=True))
    assert kinds(talker.step()) == [FrameBatch]
    talker.send(CancelStream(1))
    assert [type(r) for r in talker.step() if not isinstance(r, FrameBatch)] == [EndStream, BeginStream, BeginStream]


def test_long_prompts_go_in_by_pieces_beside_live_streams() -> None:
    talker = Talker(max_prefill_rows=16)
    talker.send(open_stream(1, num_rows=9, text_ended=True))
    talker.step()
    talker.send(open_stream(2, num_rows=40, text_ended=True), open_stream(3, num_rows=9, text_ended=True))
    pieces = []
    for _ in range(4):
        talker.step()
        pieces.append([(row.start, row.stop, row.samples) for row in talker.plan.prefills])
        assert len(talker.plan.decodes) >= 1
    assert pieces == [[(0, 16, False)], [(16, 32, False)], [(32, 40, True), (0, 8, False)], [(8, 9, True)]]


def test_what_cannot_ever_run_fails_alone() -> None:
    talker = Talker(num_pages=4)
    talker.send(
        open_stream(1, num_rows=200, max_frames=100),
        open_stream(2, num_rows=60, max_frames=20),
        open_stream(3, trailing=(10**6,)),
        open_stream(4, trailing=(11,)),
    )
    talker.send(PushText(4, (-5,)))
    records = talker.step()
    details = {r.stream_id: r.end.detail for r in records if isinstance(r, EndStream)}
    assert "max_context is 256" in details[1]
    assert "5 KV pages, the talker has 4" in details[2]
    assert "text ids must lie in" in details[3]
    assert "text ids must lie in" in details[4]
    assert ends(records) == [(stream_id, FinishReason.FAILED) for stream_id in (1, 2, 3, 4)]


def test_bugs_of_the_sender_raise() -> None:
    talker = Talker()
    talker.send(open_stream(1, text_ended=True))
    with pytest.raises(ValueError, match="stream 1 was opened twice"):
        talker.send(open_stream(1))
    with pytest.raises(ValueError, match="stream 2 was opened with a credit of 0"):
        talker.send(open_stream(2, credit_frames=0))
    with pytest.raises(ValueError, match="stream 1 got text after the end"):
        talker.send(PushText(1, (11,)))
    with pytest.raises(ValueError, match="stream 1 was granted 0 frames"):
        talker.send(GrantCredit(1, 0))


def test_a_runner_that_loses_a_row_is_found_out() -> None:
    talker = Talker()
    talker.send(open_stream(1))
    talker.scheduler.next_step()
    with pytest.raises(RuntimeError, match="returned 0 rows, 1 were to sample"):
        talker.scheduler.apply(np.empty((0, 16), np.int16))


def test_times() -> None:
    talker = Talker(num_slots=1)
    talker.send(open_stream(1, text_ended=True, max_frames=2), open_stream(2, text_ended=True), open_stream(3))
    talker.clock.now_s += 1
    talker.step()
    talker.clock.now_s += 2
    (end,) = (r.end for r in talker.step() if isinstance(r, EndStream))
    assert (end.queue_s, end.generation_s) == (1, 2)
    talker.step()
    talker.clock.now_s += 4
    talker.send(CancelStream(2), CancelStream(3))
    waits = [(r.end.queue_s, r.end.generation_s) for r in talker.step() if isinstance(r, EndStream)]
    assert waits == [(3, 0), (7, 0)]


# Any schedule

NUM_STREAMS = 6


@dataclass
class Truth:
    """What a stream has been given and what it has answered."""

    command: OpenStream
    credit: int
    text: list[int]
    text_ended: bool
    is_cancelled: bool = False
    codes: list[list[int]] = field(default_factory=list)
    num_begins: int = 0
    num_flushes: int = 0
    is_paused: bool = False
    end: EndStream | None = None

    @property
    def can_step(self) -> bool:
        has_text = self.text_ended or len(self.codes) <= len(self.text)
        return has_text and len(self.codes) < self.credit


streams = st.builds(
    dict,
    num_rows=st.integers(1, 40),
    trailing=st.lists(st.integers(11, 999), max_size=4).map(tuple),
    text_ended=st.booleans(),
    max_frames=st.integers(1, 16),
    min_frames=st.integers(0, 3),
    ignore_eos=st.booleans(),
    credit_frames=st.integers(1, 6),
    num_reference_frames=st.integers(0, 2),
    voice=st.sampled_from([None, 1, 2]),
)
actions = st.lists(
    st.tuples(st.sampled_from(["open", "text", "end", "grant", "cancel", "step", "step", "step"]), st.integers(0, 5)),
    min_size=60,
    max_size=120,
)


@settings(max_examples=150, deadline=None)
@given(
    specs=st.lists(streams, min_size=NUM_STREAMS, max_size=NUM_STREAMS),
    actions=actions,
    num_slots=st.integers(1, 4),
    num_pages=st.integers(14, 30),
    max_prefill_rows=st.integers(1, 50),
)
def test_any_schedule(
    specs: list[dict[str, int]],
    actions: list[tuple[str, int]],
    num_slots: int,
    num_pages: int,
    max_prefill_rows: int,
) -> None:
    config = EngineConfig(
        model=CHECKPOINT.folder, num_slots=num_slots, page_size=4, max_prefill_rows=max_prefill_rows, max_context=64
    )
    scheduler = Scheduler(config, CHECKPOINT, num_pages, FakeClock())
    runner = FakeTalkerRunner(CHECKPOINT, config, num_pages)
    truths: dict[int, Truth] = {}

    def step() -> None:
        plan = scheduler.next_step()
        check(plan.records)
        if plan.has_rows:
            check(scheduler.apply(runner.step(plan.prefills, plan.decodes)))
        scheduler.check_conservation()
        for truth in truths.values():
            assert truth.is_paused or truth.can_step or not truth.codes or truth.end, "stopped without a flush"

    def check(records: Sequence[FrameRecord]) -> None:
        for record in records:
            if isinstance(record, FrameBatch):
                for stream_id, index, codes in zip(
                    record.stream_ids.tolist(), record.frame_indices.tolist(), record.codes.tolist(), strict=True
                ):
                    truth = truths[stream_id]
                    assert truth.can_step and not truth.is_cancelled and truth.end is None and truth.num_begins == 1
                    assert index == len(truth.codes)
                    truth.codes.append(codes)
                    truth.is_paused = False
                continue
            assert isinstance(record, BeginStream | FlushStream | EndStream)
            truth = truths[record.stream_id]
            assert truth.end is None, "nothing comes after the end"
            match record:
                case BeginStream():
                    truth.num_begins += 1
                case FlushStream():
                    assert not truth.is_paused and not truth.can_step, "flushed twice, or with more to come"
                    truth.is_paused = True
                case EndStream():
                    truth.end = record

    def act(action: str, index: int) -> None:
        stream_id = index + 1
        if action == "step":
            step()
        elif action == "open" and stream_id not in truths:
            command = open_stream(stream_id, **specs[index])
            plan = command.plan
            truths[stream_id] = Truth(command, command.credit_frames, list(plan.trailing), plan.text_ended)
            scheduler.on_record(command)
        elif truth := truths.get(stream_id):
            if action == "text" and not truth.text_ended:
                ids = (100 + len(truth.text), 500 + stream_id)
                truth.text += ids
                scheduler.on_record(PushText(stream_id, ids))
            elif action == "end" and not truth.text_ended:
                truth.text_ended = True
                scheduler.on_record(EndText(stream_id))
            elif action == "grant":
                truth.credit += 2
                scheduler.on_record(GrantCredit(stream_id, 2))
            elif action == "cancel":
                truth.is_cancelled = True
                scheduler.on_record(CancelStream(stream_id))

    for action, index in actions:
        act(action, index)

    # Nobody who can go on is left behind, and with text and credit for all everything ends within a known time.
    for index in range(NUM_STREAMS):
        act("end", index)
        for _ in range(10):
            act("grant", index)
    num_prompt_rows = sum(truth.command.plan.num_rows for truth in truths.values())
    for _ in range(num_prompt_rows + sum(truth.command.sampling.max_frames for truth in truths.values()) + 1):
        step()
    assert scheduler.num_streams == 0
    assert not scheduler.next_step().has_rows
    scheduler.check_conservation()

    for truth in truths.values():
        assert truth.end is not None, "every open is answered"
        assert truth.end.end.num_frames == len(truth.codes)
        codes, reason = expected_codes(CHECKPOINT, truth.command, truth.text)
        if truth.end.end.reason is FinishReason.CANCELLED:
            assert truth.is_cancelled
            assert truth.codes == codes.tolist()[: len(truth.codes)]
        else:
            assert (truth.codes, truth.end.end.reason) == (codes.tolist(), reason)
