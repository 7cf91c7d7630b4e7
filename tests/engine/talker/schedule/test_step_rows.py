"""Background streams have rows where interactive ones leave time, and all of them or none make a frame."""

from sonorant.engine.ipc.messages import CancelStream, OpenStream
from sonorant.engine.talker.schedule.admission import BackgroundLimits
from tests.engine.talker.hand_driven import Talker
from tests.fakes import open_stream

LIMITS = BackgroundLimits(most_streams=4, most_rows=5)


def opening(stream_id: int, *, num_rows: int = 1) -> OpenStream:
    """Of a background stream from 100 on."""
    is_background = stream_id >= 100
    return open_stream(
        stream_id,
        num_rows=num_rows,
        text_ended=True,
        max_frames=60,
        credit_frames=60,
        ignore_eos=True,
        is_background=is_background,
    )


def new_talker(*stream_ids: int, limits: BackgroundLimits = LIMITS, **config_fields: int) -> Talker:
    """One whose streams make a frame in each step, if they may."""
    talker = Talker(num_slots=8, num_pages=100, background_limits=limits, **config_fields)
    for stream_id in stream_ids:
        talker.send(opening(stream_id))
        talker.step()
    return talker


def stepped(talker: Talker) -> tuple[list[int], list[int]]:
    """The streams of the prompts and of the frames in the next step, in the order of their rows."""
    talker.step()
    prompts = [row.sampling.seed for row in talker.plan.prefills]
    num_first = len(talker.plan.stream_ids) - len(talker.plan.decodes)
    return prompts, list(talker.plan.stream_ids[num_first:])


def test_background_streams_fill_a_step_up_to_its_limit_behind_the_others() -> None:
    talker = new_talker(100, 1, 101, 2)
    assert stepped(talker) == ([], [1, 2, 101, 100])
    assert [row.frame_index for row in talker.plan.decodes] == [3, 1, 1, 2]
    talker.send(opening(3), opening(4))
    talker.step()
    assert stepped(talker) == ([], [1, 2, 3, 4]), "together they would be six"
    talker.send(CancelStream(1))
    assert stepped(talker) == ([], [4, 2, 3, 100, 101])


def test_no_background_row_is_beside_an_interactive_prompt() -> None:
    talker = new_talker(100, 1, max_prefill_rows=16)
    talker.send(opening(101, num_rows=20), opening(2, num_rows=40))
    assert [stepped(talker) for _ in range(3)] == [([2], [1])] * 3
    assert stepped(talker) == ([101], [1, 2, 100])


def test_background_prompts_have_the_rows_that_are_left_of_the_limit() -> None:
    talker = new_talker(100, 1)
    talker.send(opening(101, num_rows=8))
    pieces = []
    for _ in range(3):
        talker.step()
        pieces += [(row.start, row.stop) for row in talker.plan.prefills]
    assert pieces == [(0, 3), (3, 6), (6, 8)]


def test_background_streams_alone_always_have_rows() -> None:
    talker = new_talker(100, 101, 102, limits=BackgroundLimits(most_streams=4, most_rows=0))
    assert stepped(talker) == ([], [100, 101, 102])
    talker.send(opening(103, num_rows=20))
    assert stepped(talker) == ([103], [100, 101, 102])


def test_where_no_row_may_be_beside_interactive_ones_they_wait_and_go_on() -> None:
    talker = new_talker(100, limits=BackgroundLimits(most_streams=4, most_rows=0))
    talker.send(opening(101), opening(1))
    assert [stepped(talker) for _ in range(3)] == [([1], []), ([], [1]), ([], [1])]
    talker.send(CancelStream(1))
    assert stepped(talker) == ([101], [100])
