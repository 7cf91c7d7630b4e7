"""How streams come in: slots, pages, prompts by pieces, and what cannot come in at all."""

from hypothesis import given
from hypothesis import strategies as st

from sonorant.engine.ipc.messages import BeginStream, CancelStream, EndStream, FrameBatch, PushText
from sonorant.engine.types import FinishReason
from tests.engine.talker.hand_driven import Talker, ends, kinds
from tests.fakes import open_stream


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
    assert "5 KV pages, but the talker has only 4" in details[2]
    assert "text ids must lie in" in details[3]
    assert "text ids must lie in" in details[4]
    assert ends(records) == [(stream_id, FinishReason.FAILED) for stream_id in (1, 2, 3, 4)]


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


@given(
    num_rows=st.lists(st.integers(1, 80), min_size=1, max_size=4),
    max_prefill_rows=st.integers(8, 64),
    num_live=st.integers(1, 4),
)
def test_prompts_of_any_length_take_their_share_of_a_step_and_no_more(
    num_rows: list[int], max_prefill_rows: int, num_live: int
) -> None:
    """Live streams make a frame in every step, and the prompts come in as soon as the budget lets them."""
    talker = Talker(num_slots=10, num_pages=200, max_prefill_rows=max_prefill_rows)
    talker.send(*(open_stream(n, text_ended=True, max_frames=100, credit_frames=100) for n in range(num_live)))
    while len(talker.plan.decodes) < num_live:
        talker.step()
    talker.send(*(open_stream(10 + n, num_rows=rows, text_ended=True) for n, rows in enumerate(num_rows)))
    num_left = sum(num_rows)
    while num_left:
        talker.step()
        num_prompt_rows = sum(row.stop - row.start for row in talker.plan.prefills)
        assert num_prompt_rows == min(num_left, max_prefill_rows)
        assert len(talker.plan.decodes) >= num_live
        num_left -= num_prompt_rows


def test_a_prompt_begins_behind_the_pages_that_another_left() -> None:
    talker = Talker()
    talker.send(open_stream(1, num_rows=40, text_ended=True, voice=7), open_stream(2, num_rows=40, voice=8))
    talker.step()
    talker.send(open_stream(3, num_rows=40, text_ended=True, voice=7), open_stream(4, num_rows=32, voice=8))
    talker.step()
    first, second = talker.plan.prefills
    assert (first.start, first.stop, first.num_shared_rows, first.begins) == (32, 40, 32, True)
    assert (second.start, second.stop) == (16, 32), "the last row goes in again: frame 0 comes from it"
    talker.send(CancelStream(1), CancelStream(3))
    talker.step()
    talker.send(open_stream(5, num_rows=50, text_ended=True, voice=7))
    talker.step()
    (row,) = talker.plan.prefills
    assert (row.start, row.stop) == (32, 50), "pages are kept when nobody leases them"
