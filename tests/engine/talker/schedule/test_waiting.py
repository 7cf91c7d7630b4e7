"""Who is let in next, where several callers wait for slots or for KV pages."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sonorant.engine.ipc.messages import BeginStream, CancelStream, OpenStream
from sonorant.engine.types import FinishReason
from tests.engine.talker.hand_driven import Talker, ends
from tests.fakes import open_stream

ONE, OTHER, THIRD = 1, 2, 3  # callers
ONE_FRAME = np.ones((1, 16), np.int16)


def opening(stream_id: int, caller: int) -> OpenStream:
    return open_stream(stream_id, num_rows=1, max_frames=20, trailing=(11,), caller=caller)


class Callers:
    """What they do, and the streams that are let in at once."""

    def __init__(self, talker: Talker) -> None:
        self.talker = talker

    def end(self, *stream_ids: int) -> list[int]:
        self.talker.send(*map(CancelStream, stream_ids))
        return self.begun()

    def begun(self) -> list[int]:
        return [record.stream_id for record in self.talker.step() if isinstance(record, BeginStream)]


class Slots(Callers):
    """A talker of which only the slots are short."""

    def __init__(self, num_slots: int) -> None:
        super().__init__(Talker(num_slots=num_slots, num_pages=500))

    def open(self, caller: int, *stream_ids: int) -> list[int]:
        self.talker.send(*(opening(stream_id, caller) for stream_id in stream_ids))
        return self.begun()


class Pages(Callers):
    """A talker of which only the 64 pages are short, an eighth of which are 8."""

    def __init__(self) -> None:
        # Without a limit by the text, each needs what its max_frames say.
        super().__init__(
            Talker(num_slots=128, num_pages=64, max_context=64 * 16, max_prefill_rows=1024, runaway_frames_per_token=0)
        )

    def open(self, caller: int, *stream_ids: int, pages: int) -> list[int]:
        """Each needs so many pages, of its own."""
        self.talker.send(
            *(open_stream(id_, num_rows=1, max_frames=16 * pages - 1, caller=caller) for id_ in stream_ids)
        )
        return self.begun()

    def open_shared(self, caller: int, *stream_ids: int) -> list[int]:
        """Each needs 17 pages, of which all but one are those of a prompt that they have in common."""
        self.talker.send(*(open_stream(id_, num_rows=257, max_frames=15, voice=7, caller=caller) for id_ in stream_ids))
        return self.begun()


def test_callers_come_by_turns_and_the_streams_of_one_in_order() -> None:
    slots = Slots(2)
    assert slots.open(ONE, 10, 11, 12, 13, 14) == [10, 11]
    assert slots.open(OTHER, 20, 21) == []
    assert slots.open(THIRD, 30) == []
    assert slots.end(10, 11) == [12, 20]
    assert slots.end(12, 20) == [30, 13]
    assert slots.end(30, 13) == [21, 14]


def test_who_has_many_leaves_an_eighth_of_the_slots_to_others() -> None:
    slots = Slots(16)
    assert slots.open(ONE, *range(100, 120)) == list(range(100, 114))
    assert slots.open(OTHER, 20) == [20], "at once"
    assert slots.open(OTHER, 21, 22) == [21]
    assert slots.end(100) == [22], "and what is left goes by turns"
    assert slots.end(20, 21, 22) == [114]
    assert slots.end(*range(101, 115)) == list(range(115, 120))


def test_where_all_are_one_caller_no_slot_is_kept_free() -> None:
    slots = Slots(16)
    assert slots.open(0, *range(100, 120)) == list(range(100, 116))


def resuming(stream_id: int, caller: int, *, in_turn: bool) -> OpenStream:
    opened = open_stream(stream_id, num_rows=1, max_frames=20, trailing=(11,), caller=caller, known_codes=ONE_FRAME)
    return replace(opened, in_turn=in_turn)


def test_what_goes_on_behind_known_frames_comes_first() -> None:
    slots = Slots(1)
    assert slots.open(ONE, 10) == [10]
    assert slots.open(OTHER, 20) == []
    slots.talker.send(*(resuming(stream_id, THIRD, in_turn=False) for stream_id in (30, 31)))
    assert [slots.end(stream_id) for stream_id in (10, 30, 31)] == [[30], [31], [20]]


def test_what_only_says_that_it_goes_on_comes_in_turn() -> None:
    slots = Slots(1)
    assert slots.open(ONE, 10) == [10]
    assert slots.open(OTHER, 20, 21) == []
    slots.talker.send(*(resuming(stream_id, THIRD, in_turn=True) for stream_id in (30, 31)))
    assert [slots.end(stream_id) for stream_id in (10, 20, 30, 21)] == [[20], [30], [21], [31]]


def test_who_only_says_that_it_goes_on_leaves_an_eighth_of_the_slots_to_others() -> None:
    slots = Slots(16)
    slots.talker.send(*(resuming(stream_id, ONE, in_turn=True) for stream_id in range(100, 120)))
    assert slots.begun() == list(range(100, 114))
    assert slots.open(OTHER, 20) == [20], "at once"


def test_what_waits_may_go_away() -> None:
    slots = Slots(1)
    assert slots.open(ONE, 10, 11, 12) == [10]
    assert slots.open(OTHER, 20) == []
    assert slots.end(11, 20) == []
    assert slots.end(10) == [12]


def test_who_has_to_leave_slots_to_others_can_still_use_those_of_its_own_streams_without_text() -> None:
    slots = Slots(16)
    assert slots.open(ONE, *range(100, 120)) == list(range(100, 114))
    assert slots.open(OTHER, 20) == [20]
    slots.talker.step()  # the text of all is said
    slots.talker.clock.now_s += 2
    records = slots.talker.step()
    assert ends(records) == [(stream_id, FinishReason.YIELDED) for stream_id in range(100, 107)], "none of the other's"
    assert [record.stream_id for record in records if isinstance(record, BeginStream)] == list(range(114, 120))
    assert slots.open(THIRD, 30, 31) == [30, 31], "at once: an eighth is still free"


def test_who_has_many_leaves_an_eighth_of_the_pages_to_others() -> None:
    """Few streams, most of the slots are free."""
    pages = Pages()
    assert pages.open(ONE, *range(100, 110), pages=8) == list(range(100, 107))
    assert pages.open(OTHER, 20, pages=5) == [20], "at once"
    assert pages.open(OTHER, 21, 22, pages=3) == [21]
    assert pages.end(100) == [22], (
        "it has waited for its turn, and leaves too little for another one of the first caller"
    )
    assert pages.end(20, 21) == []
    assert pages.end(22) == [107]
    assert pages.end(*range(101, 108)) == [108, 109]


def test_where_all_are_one_caller_no_page_is_kept_free() -> None:
    pages = Pages()
    assert pages.open(0, *range(100, 110), pages=8) == list(range(100, 108))


def test_up_to_half_of_the_pages_a_caller_need_not_leave_any() -> None:
    pages = Pages()
    assert pages.open(OTHER, 20, pages=32) == [20]
    assert pages.open(ONE, *range(100, 110), pages=8) == list(range(100, 104))


def test_one_stream_may_take_all_pages_where_its_caller_has_no_other() -> None:
    pages = Pages()
    assert pages.open(ONE, 10, pages=64) == [10]
    assert pages.open(OTHER, 20, pages=1) == []
    assert pages.open(ONE, 11, pages=64) == []
    assert pages.end(10) == [20]
    assert pages.end(20) == [11]


def test_small_streams_of_others_do_not_keep_out_a_large_one() -> None:
    """There is always one of them that would fit beside those inside."""
    pages = Pages()
    assert pages.open(OTHER, 20, pages=4) == [20]
    assert pages.open(ONE, 10, pages=62) == []
    assert pages.open(OTHER, 21, pages=4) == [] == pages.open(THIRD, 30, pages=4)
    assert pages.end(20) == [10]
    assert pages.end(10) == [21, 30]


def test_a_caller_that_has_to_leave_pages_waits_no_longer_than_for_its_own() -> None:
    pages = Pages()
    assert pages.open(ONE, 10, pages=30) == [10]
    assert pages.open(OTHER, 20, pages=6) == [20]
    assert pages.open(ONE, 11, pages=30) == []
    for stream_id in range(21, 40):
        assert pages.open(OTHER, stream_id, pages=6) == [stream_id], "it is not held up"
        assert pages.end(stream_id - 1) == []
    assert pages.end(10) == [11]


def test_pages_that_streams_of_a_caller_share_count_once() -> None:
    pages = Pages()
    assert pages.open_shared(ONE, 10) == [10]
    assert pages.open(OTHER, 50, pages=24) == [50]
    assert pages.open_shared(ONE, *range(11, 40)) == list(range(11, 26)), "with the last it has 32"
    assert pages.end(10) == [26], "what was its is the others', too"
    assert pages.end(*range(11, 27)) == list(range(27, 40)), "and pages of one who has left are new to the next"


def prefilled(talker: Talker, num: int) -> list[int]:
    """The first streams whose prompts are in, in order."""
    done: list[int] = []
    while len(done) < num:
        talker.step()
        num_first = len(talker.plan.stream_ids) - len(talker.plan.decodes)
        done += talker.plan.stream_ids[:num_first]
    return done


def test_long_prompts_of_one_caller_are_prefilled_after_the_first_ones_of_others() -> None:
    talker = Talker(num_slots=16, num_pages=500, max_prefill_rows=32)
    talker.send(*(open_stream(id_, num_rows=80, caller=ONE) for id_ in (10, 11, 12)))
    talker.step()
    talker.send(*(open_stream(id_, num_rows=9, caller=OTHER) for id_ in (20, 21)))
    assert prefilled(talker, 5) == [10, 20, 11, 21, 12]


def test_where_all_are_one_caller_prompts_are_prefilled_in_order() -> None:
    talker = Talker(num_slots=16, num_pages=500, max_prefill_rows=32)
    talker.send(*(open_stream(id_, num_rows=rows) for id_, rows in ((10, 80), (11, 80), (20, 9))))
    assert prefilled(talker, 3) == [10, 11, 20]


def test_streams_that_go_on_are_prefilled_before_new_ones_of_others() -> None:
    talker = Talker(num_slots=16, num_pages=500, max_prefill_rows=32)
    talker.send(*(open_stream(id_, num_rows=79, trailing=(11,), known_codes=ONE_FRAME, caller=ONE) for id_ in (10, 11)))
    talker.send(open_stream(20, num_rows=9, caller=OTHER))
    order: list[int] = []
    for _ in range(6):
        talker.step()
        order += [stream_id for stream_id in talker.plan.stream_ids if stream_id not in order]
    assert order == [10, 11, 20]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.integers(0, 3), st.integers(1, 64)),  # a caller opens a stream that needs so many pages
            st.tuples(st.none(), st.integers(0, 9)),  # of the streams inside, this one ends
        ),
        max_size=40,
    )
)
def test_whoever_has_many_pages_leaves_some_and_everybody_gets_in(actions: list[tuple[int | None, int]]) -> None:
    pages = Pages()
    inside: dict[int, tuple[int, int]] = {}  # caller and pages
    waiting: dict[int, tuple[int, int]] = {}

    def note(begun: list[int]) -> None:
        for stream_id in begun:
            inside[stream_id] = waiting.pop(stream_id)
            caller = inside[stream_id][0]
            of_caller = [has for whose, has in inside.values() if whose == caller]
            num_free = 64 - sum(has for _, has in inside.values())
            assert num_free >= (8 if caller and len(of_caller) > 1 and sum(of_caller) > 32 else 0)
            earlier = [other for other in waiting if other < stream_id and waiting[other][0] == caller]
            assert not earlier, "the streams of one caller come in order"

    def end(stream_id: int) -> None:
        del inside[stream_id]
        note(pages.end(stream_id))

    for stream_id, (caller, number) in enumerate(actions):
        if caller is not None:
            waiting[stream_id] = caller, number
            note(pages.open(caller, stream_id, pages=number))
        elif inside:
            end(sorted(inside)[number % len(inside)])
    while inside:
        end(next(iter(inside)))
    assert not waiting
