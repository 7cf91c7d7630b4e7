"""Interactive streams come first: background streams wait behind them, and give up slots and pages for them."""

import numpy as np
import pytest

from sonorant.engine.ipc.messages import BeginStream, CancelStream, EndStream, OpenStream, PushText
from sonorant.engine.talker.schedule.admission import (
    LENDS_AFTER_S,
    MOST_BACKGROUND_STREAMS,
    MOST_BACKGROUND_STREAMS_ON_CPU,
    BackgroundLimits,
)
from sonorant.engine.types import FinishReason
from tests.engine.talker.hand_driven import Talker
from tests.fakes import open_stream

FRAMES = np.ones((3, 16), np.int16)
HEAVY = 7  # a caller


class Callers:
    """They open streams; those from 100 on are background streams. What yields is opened again, as by the engine."""

    def __init__(self, *, most_streams: int = 2, num_slots: int = 4, num_pages: int = 64) -> None:
        limits = BackgroundLimits(most_streams, most_rows=100)
        self.talker = Talker(
            num_slots=num_slots,
            num_pages=num_pages,
            max_context=1024,
            max_prefill_rows=1024,
            runaway_frames_per_token=0,
            background_limits=limits,
        )
        self.yielded: list[int] = []
        self._openings: dict[int, OpenStream] = {}

    def open(self, *stream_ids: int, num_pages: int = 1, caller: int = 0, num_known: int = 0) -> list[int]:
        """Each needs so many pages of its own. Returns which streams begin in the next step."""
        for stream_id in stream_ids:
            self._openings[stream_id] = open_stream(
                stream_id,
                num_rows=1,
                max_frames=16 * num_pages - 1,
                credit_frames=16 * num_pages,
                ignore_eos=True,
                known_codes=FRAMES[:num_known] if num_known else None,
                trailing=(11,) * (16 * num_pages),
                caller=caller,
                is_background=stream_id >= 100,
            )
            self.talker.send(self._openings[stream_id])
        return self.step()

    def end(self, *stream_ids: int) -> list[int]:
        self.talker.send(*map(CancelStream, stream_ids))
        return self.step()

    def step(self) -> list[int]:
        records = self.talker.step()
        ends = [each for each in records if isinstance(each, EndStream)]
        self.yielded = [each.stream_id for each in ends if each.end.reason is FinishReason.YIELDED]
        self.talker.send(*(self._openings[stream_id] for stream_id in self.yielded))
        return [each.stream_id for each in records if isinstance(each, BeginStream)]


def test_background_streams_come_behind_all_others_and_have_a_limit() -> None:
    callers = Callers()
    assert callers.open(1, 2, 3, 4) == [1, 2, 3, 4]
    assert callers.open(100, 101, 102, 5) == []
    assert callers.end(1) == [5]
    assert callers.end(2, 3, 4) == [100, 101], "a slot stays free"
    assert callers.end(100) == [102]


def test_a_background_stream_that_goes_on_waits_behind_interactive_ones_and_in_its_turn() -> None:
    callers = Callers(num_slots=1, most_streams=1)
    assert callers.open(1) == [1]
    assert callers.open(100) == []
    assert callers.open(101, num_known=3) == callers.open(2) == []
    assert [callers.end(stream_id) for stream_id in (1, 2, 100)] == [[2], [100], [101]]


def test_a_background_stream_gives_its_slot_to_an_interactive_one_and_comes_back_behind_it() -> None:
    callers = Callers(num_slots=2, most_streams=1)
    assert callers.open(100, 1) == [1, 100]
    assert callers.open(2) == [2]
    assert callers.yielded == [100]
    assert callers.open(3) == callers.step() == []
    assert callers.end(1) == [3]
    assert callers.end(2) == [100]


def test_who_has_the_fewest_frames_gives_way_first() -> None:
    callers = Callers()
    assert callers.open(100, num_known=3) == [100]
    assert callers.open(101) == [101]
    assert callers.open(1, 2, 3) == [1, 2, 3]
    assert callers.yielded == [101]
    assert callers.open(4) == [4]
    assert callers.yielded == [100]


def test_background_streams_give_pages_to_an_interactive_one_and_no_more_than_it_needs() -> None:
    callers = Callers()
    assert callers.open(100, 101, num_pages=20) == [100, 101]
    assert callers.open(1, num_pages=24) == [1]
    assert callers.yielded == []
    assert callers.open(2, num_pages=10) == [2]
    assert callers.yielded == [101]


def test_they_keep_pages_that_would_not_be_enough() -> None:
    callers = Callers()
    assert callers.open(1, num_pages=40) == [1]
    assert callers.open(100, num_pages=10) == [100]
    assert callers.open(2, num_pages=30) == []
    assert callers.yielded == []
    assert callers.open(101) == [], "nor do others take what it waits for"
    assert callers.end(1) == [2, 101]
    assert callers.yielded == []


def test_an_interactive_stream_that_grows_has_the_pages_of_background_streams() -> None:
    talker = Talker(num_slots=4, num_pages=32, max_context=512)
    talker.send(
        open_stream(1, num_rows=8, max_frames=500, credit_frames=500),
        open_stream(100, num_rows=8, max_frames=500, text_ended=True, trailing=(11,) * 50, is_background=True),
    )
    talker.step()
    talker.send(PushText(1, (11,) * 200))
    records = [record for number in range(200) for record in talker.step(number * number % 1999)]
    ends = [(record.stream_id, record.end.reason) for record in records if isinstance(record, EndStream)]
    assert ends == [(100, FinishReason.YIELDED)]
    assert len(talker.plan.decodes) == 1


def test_a_heavy_caller_may_have_the_slots_of_background_streams_but_not_those_that_it_leaves_to_others() -> None:
    callers = Callers(num_slots=16, most_streams=8)
    assert callers.open(*range(100, 108)) == list(range(100, 108))
    assert callers.open(*range(1, 20), caller=HEAVY) == list(range(1, 15))
    assert len(callers.yielded) == 8
    assert len(callers.step()) == 2, "what nobody else wants now"
    assert callers.step() == [] and callers.yielded == []
    assert callers.open(50, 51) == [50, 51]
    assert len(callers.yielded) == 2


def test_a_background_stream_has_the_slot_only_of_another_background_stream_without_text() -> None:
    talker = Talker(num_slots=2, background_limits=BackgroundLimits(most_streams=1, most_rows=100))
    talker.send(open_stream(1), open_stream(2), open_stream(100, is_background=True))
    for _ in range(3):
        records = talker.step()
    assert (records, talker.scheduler.wait_s) == ([], None), "nobody lends it a slot"
    talker.send(CancelStream(1), open_stream(101, is_background=True))
    talker.step()
    assert not talker.step()
    assert talker.scheduler.wait_s == LENDS_AFTER_S
    talker.clock.now_s += LENDS_AFTER_S
    ended, begun, *_ = talker.step()
    assert isinstance(ended, EndStream) and isinstance(begun, BeginStream)
    assert (ended.stream_id, ended.end.reason, begun.stream_id) == (100, FinishReason.YIELDED, 101)


@pytest.mark.parametrize(
    ("num_slots", "on_cuda", "most_streams"),
    [
        (1, True, 1),
        (8, True, 4),
        (2048, True, MOST_BACKGROUND_STREAMS),
        (2, False, 1),
        (32, False, MOST_BACKGROUND_STREAMS_ON_CPU),
    ],
)
def test_background_streams_have_at_most_half_of_the_slots(num_slots: int, on_cuda: bool, most_streams: int) -> None:
    assert BackgroundLimits.of(num_slots, on_cuda=on_cuda).most_streams == most_streams


def test_on_the_cpu_a_step_has_no_background_rows_beside_interactive_ones() -> None:
    assert BackgroundLimits.of(32, on_cuda=False).most_rows == 0
