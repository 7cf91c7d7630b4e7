"""Streams that lose their way are ended with the reason; those that speak are left alone."""

from hypothesis import given
from hypothesis import strategies as st

from sonorant.engine.ipc.messages import EndStream, FrameBatch, GrantCredit
from sonorant.engine.talker.schedule.runaway import MAX_PERIOD, Repetition, frame_limit
from sonorant.engine.types import FinishReason
from tests.engine.talker.hand_driven import EOS, Talker
from tests.fakes import open_stream

LIMIT = frame_limit(12, 2)  # of the default settings and a text of two tokens


def num_repeated(codes: list[int]) -> int:
    """At the end of `codes`, worked out from all of them."""
    longest = 0
    for period in range(1, MAX_PERIOD + 1):
        run = 0
        while run + period < len(codes) and codes[-1 - run] == codes[-1 - run - period]:
            run += 1
        longest = max(longest, run)
    return longest


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=70), max_size=4), st.integers(1, 4))
def test_repetitions_of_any_period(pieces: list[list[int]], times: int) -> None:
    codes = [code for piece in pieces for code in piece * times]
    repetition = Repetition()
    for n, code in enumerate(codes, 1):
        assert repetition.add(code) == num_repeated(codes[:n])


def run(talker: Talker, codes: list[int]) -> tuple[int, EndStream | None]:
    """One step for each code, until the stream ends: frames made, and the end."""
    num_frames = 0
    for code in codes:
        for record in talker.step(code):
            if isinstance(record, FrameBatch):
                num_frames += 1
            if isinstance(record, EndStream):
                return num_frames, record
    return num_frames, None


def varied(count: int) -> list[int]:
    return [n * n % 1999 for n in range(count)]


def test_a_stream_that_never_ends_is_ended() -> None:
    talker = Talker(max_context=2048, num_pages=200)
    talker.send(open_stream(1, trailing=(11,), text_ended=True, max_frames=1000, credit_frames=1000))
    num_frames, end = run(talker, varied(1000))
    assert end is not None and end.end.reason is FinishReason.RUNAWAY
    assert num_frames == end.end.num_frames == LIMIT == 120
    assert end.end.detail == "the model made 120 frames for 2 text tokens, which is the limit (96 + 12 per token)"


def test_the_limit_grows_with_the_text_and_waits_for_credit() -> None:
    talker = Talker(max_context=2048, num_pages=200)
    talker.send(open_stream(1, trailing=(11,) * 9, text_ended=True, max_frames=1000, credit_frames=LIMIT))
    assert run(talker, varied(1000)) == (LIMIT, None)
    talker.send(GrantCredit(1, 1000))
    num_frames, end = run(talker, varied(1000))
    assert end is not None and LIMIT + num_frames == frame_limit(12, 10)


def test_a_stream_that_goes_in_circles_is_ended_once_it_is_too_long_for_its_text() -> None:
    talker = Talker(max_context=2048, num_pages=200)
    talker.send(open_stream(1, trailing=(11,) * 9, text_ended=True, max_frames=1000, credit_frames=1000))
    num_frames, end = run(talker, [1, 2, 3] * 300)
    assert end is not None and end.end.reason is FinishReason.RUNAWAY
    suspect_at = frame_limit(12, 10) // 2
    assert num_frames == suspect_at + 64 + 2, (
        "its period of three has to be seen first; the frame that told counts, too"
    )
    assert end.end.detail.endswith("frames for 10 text tokens, the last 64 of them repeating what came before")


def test_repetitions_within_the_time_of_the_text_are_speech() -> None:
    talker = Talker(max_context=2048, num_pages=200)
    talker.send(open_stream(1, trailing=(11,) * 30, text_ended=True, max_frames=1000, credit_frames=1000))
    num_frames, end = run(talker, [1, 2] * 110 + [EOS])
    assert end is not None and (num_frames, end.end.reason) == (220, FinishReason.COMPLETED)


def test_a_number_of_frames_that_was_asked_for_is_made() -> None:
    talker = Talker(max_context=2048, num_pages=200)
    wanted = {"text_ended": True, "max_frames": 400, "credit_frames": 1000}
    talker.send(open_stream(1, ignore_eos=True, **wanted))
    num_frames, end = run(talker, [7] * 1000)
    assert end is not None and (num_frames, end.end.reason) == (400, FinishReason.MAX_FRAMES)


def test_frames_that_were_wanted_at_least_do_not_count() -> None:
    talker = Talker(max_context=2048, num_pages=200)
    talker.send(open_stream(1, text_ended=True, min_frames=300, max_frames=1000, credit_frames=1000))
    num_frames, end = run(talker, [7] * 1000)
    assert end is not None and (num_frames, end.end.reason) == (300 + 64, FinishReason.RUNAWAY)


def test_the_guard_can_be_turned_off() -> None:
    talker = Talker(max_context=2048, num_pages=200, runaway_frames_per_token=0)
    talker.send(open_stream(1, text_ended=True, max_frames=400, credit_frames=1000))
    num_frames, end = run(talker, [7] * 1000)
    assert end is not None and (num_frames, end.end.reason) == (400, FinishReason.MAX_FRAMES)
