"""Frame by frame: what streams are fed, when they rest, when they end."""

import numpy as np
import pytest

from sonorant.engine.ipc.messages import (
    BeginStream,
    CancelStream,
    EndStream,
    EndText,
    FlushStream,
    FrameBatch,
    GrantCredit,
    PushText,
)
from sonorant.engine.talker.schedule.rows import BROKEN
from sonorant.engine.types import FinishReason
from tests.engine.talker.hand_driven import EOS, PAD, Talker, ends, kinds
from tests.fakes import open_stream


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


def test_a_stream_without_usable_scores_fails_alone_and_leaves_nothing_to_share() -> None:
    talker = Talker()
    talker.send(open_stream(1, num_rows=40, voice=5), open_stream(2, num_rows=40, voice=6, text_ended=True))
    plan = talker.scheduler.next_step()
    records = talker.scheduler.apply(plan, np.array([[BROKEN] * 16, [7] * 16], np.int16))
    (end,) = [record for record in records if isinstance(record, EndStream)]
    assert (end.stream_id, end.end.reason) == (1, FinishReason.NO_SCORES)
    assert "not finite" in end.end.detail
    talker.send(open_stream(3, num_rows=40, voice=5), open_stream(4, num_rows=40, voice=6))
    talker.step()
    assert [row.num_shared_rows for row in talker.plan.prefills] == [0, 32]


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


def test_a_flush_tells_whether_the_stream_lacks_only_credit() -> None:
    talker = Talker()
    talker.send(
        open_stream(1, trailing=(11,), credit_frames=1),
        open_stream(2, text_ended=True, credit_frames=1),
        open_stream(3, credit_frames=1),
        open_stream(4, credit_frames=9),
    )
    flushes = [record for record in talker.step() if isinstance(record, FlushStream)]
    assert flushes == [FlushStream(1, True), FlushStream(2, True), FlushStream(3, False), FlushStream(4, False)]


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
    assert [row.allow_eos for row in talker.plan.decodes] == [False, False, True, True]
    talker.step()
    assert [row.allow_eos for row in talker.plan.decodes] == [True, False, True, True]


def test_a_text_that_came_whole_may_end_before_all_of_it_went_in() -> None:
    """As in the official package."""
    talker = Talker()
    talker.send(open_stream(1, trailing=(11, 12, 13), text_ended=True))
    talker.step()
    assert [row.allow_eos for row in talker.plan.prefills] == [True]


@pytest.mark.parametrize("after", range(1, 5))
def test_which_frames_may_be_the_end_does_not_depend_on_when_the_end_of_the_text_is_told(after: int) -> None:
    talker, allowed = Talker(), list[bool]()
    talker.send(open_stream(1, trailing=(11, 12)))
    for step in range(1, 7):
        talker.step()
        allowed += [row.allow_eos for row in (*talker.plan.prefills, *talker.plan.decodes)]
        if step == after:
            talker.send(EndText(1))
    assert allowed[:5] == [False, False, False, True, True]


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
    plan = talker.scheduler.next_step()
    with pytest.raises(RuntimeError, match="returned 0 rows, 1 were to sample"):
        talker.scheduler.apply(plan, np.empty((0, 16), np.int16))
