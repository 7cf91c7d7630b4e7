"""Who is let in next, where several callers wait for slots."""

from sonorant.engine.ipc.messages import BeginStream, CancelStream, OpenStream
from tests.engine.talker.hand_driven import Talker
from tests.fakes import open_stream

ONE, OTHER, THIRD = 1, 2, 3  # callers


def opening(stream_id: int, caller: int) -> OpenStream:
    return open_stream(stream_id, num_rows=1, max_frames=20, trailing=(11,), caller=caller)


class Slots:
    """A talker of which only the slots are short."""

    def __init__(self, num_slots: int) -> None:
        self.talker = Talker(num_slots=num_slots, num_pages=500)

    def open(self, caller: int, *stream_ids: int) -> list[int]:
        self.talker.send(*(opening(stream_id, caller) for stream_id in stream_ids))
        return self.begun()

    def end(self, *stream_ids: int) -> list[int]:
        self.talker.send(*map(CancelStream, stream_ids))
        return self.begun()

    def begun(self) -> list[int]:
        return [record.stream_id for record in self.talker.step() if isinstance(record, BeginStream)]


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


def test_what_waits_may_go_away() -> None:
    slots = Slots(1)
    assert slots.open(ONE, 10, 11, 12) == [10]
    assert slots.open(OTHER, 20) == []
    assert slots.end(11, 20) == []
    assert slots.end(10) == [12]
