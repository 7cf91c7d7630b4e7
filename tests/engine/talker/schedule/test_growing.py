"""A stream reserves pages for the frames that its text so far may take, and is given more for text that comes later."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sonorant.engine.config import EngineConfig
from sonorant.engine.ipc.messages import (
    BeginStream,
    CancelStream,
    EndStream,
    EndText,
    FlushStream,
    FrameBatch,
    FrameRecord,
    OpenStream,
    PushText,
)
from sonorant.engine.talker.schedule.runaway import frame_limit
from sonorant.engine.talker.schedule.scheduler import Scheduler
from sonorant.engine.talker.stepping import Stepping
from sonorant.engine.types import FinishReason, Int16Array
from tests.engine.talker.hand_driven import CHECKPOINT, Talker, ends
from tests.fakes import FakeClock, FakeTalkerRunner, open_stream

PAGE = 16
CONTEXT = 1024
TURNS = 25  # between two pieces of a text
ROWS = 8
FIRST_PAGES = -(-(ROWS + frame_limit(12, 1) // 2) // PAGE)  # of a stream whose text so far is one token
FIRST_FRAMES = FIRST_PAGES * PAGE - ROWS


def opening(stream_id: int, **more: object) -> OpenStream:
    """As most callers open one: as many frames as there is room for, and text that is yet to come."""
    fields: dict[str, object] = {"max_frames": CONTEXT - ROWS, "credit_frames": CONTEXT, **more}
    return open_stream(stream_id, num_rows=ROWS, **fields)  # type: ignore[arg-type]


def begun(records: list[FrameRecord]) -> list[int]:
    return [record.stream_id for record in records if isinstance(record, BeginStream)]


def step(talker: Talker, times: int) -> list[FrameRecord]:
    """No two frames in a row are the same, or the streams would be runaways."""
    return [record for n in range(times) for record in talker.step(n * n % 1999)]


def text(stream_id: int, num: int) -> PushText:
    return PushText(stream_id, (11,) * num)


def test_short_texts_reserve_little_whatever_their_max_frames_are() -> None:
    talker = Talker(num_slots=20, num_pages=CONTEXT // PAGE, max_context=CONTEXT)
    talker.send(*(opening(stream_id, text_ended=True) for stream_id in range(1, 20)))
    assert begun(talker.step()) == list(range(1, 1 + CONTEXT // PAGE // FIRST_PAGES))


def test_text_that_came_while_a_stream_waited_counts() -> None:
    talker = Talker(num_slots=1, num_pages=CONTEXT // PAGE, max_context=CONTEXT)
    talker.send(opening(1), opening(2), text(2, 20))
    talker.step()
    talker.send(CancelStream(1))
    talker.step()
    (row,) = talker.plan.prefills
    assert len(row.pages) == -(-(ROWS + frame_limit(12, 21) // 2) // PAGE)


def test_a_longer_text_gets_more_pages_when_it_needs_them() -> None:
    talker = Talker(num_slots=2, num_pages=CONTEXT // PAGE, max_context=CONTEXT)
    talker.send(opening(1))
    talker.step()
    talker.send(text(1, 200))
    step(talker, FIRST_FRAMES - 1)
    assert not talker.plan.pages, "it has made as many frames as its pages hold"
    talker.step()
    ((slot, pages),) = talker.plan.pages
    assert slot == talker.plan.decodes[0].slot
    assert len(pages) == CONTEXT // PAGE, "for 201 tokens it may need all"
    records = step(talker, 50)
    assert not talker.plan.pages and len(records) == 50 and all(isinstance(each, FrameBatch) for each in records)


def test_without_free_pages_it_gives_all_back_and_goes_on_when_there_are_some() -> None:
    talker = Talker(num_slots=2, num_pages=CONTEXT // PAGE, max_context=CONTEXT)
    talker.send(opening(1), opening(2, text_ended=True, trailing=(11,) * 60))  # the second has 26 pages
    talker.step()
    talker.send(text(1, 200))
    records = step(talker, FIRST_FRAMES - 1)
    assert ends(records) == [(1, FinishReason.YIELDED)]
    assert not any(isinstance(record, FlushStream) for record in records)
    known = np.arange(FIRST_FRAMES * 16, dtype=np.int16).reshape(-1, 16) % 1000
    talker.send(opening(1, trailing=(11,) * 200, known_codes=known))
    assert begun(talker.step(5)) == []
    talker.send(CancelStream(2))
    assert begun(talker.step(6)) == [1]


def test_a_suspect_gets_pages_until_it_is_a_runaway() -> None:
    talker = Talker(num_slots=2, num_pages=CONTEXT // PAGE, max_context=CONTEXT)
    talker.send(opening(1, text_ended=True, trailing=(11,) * 20))
    talker.step()
    limit = frame_limit(12, 21)
    num_pages = -(-(ROWS + limit // 2) // PAGE)
    step(talker, num_pages * PAGE - ROWS)
    ((_, pages),) = talker.plan.pages
    assert len(pages) == -(-(ROWS + limit) // PAGE) > num_pages
    assert ends(step(talker, limit)) == [(1, FinishReason.RUNAWAY)]


def test_a_stream_that_waits_for_text_at_the_end_of_its_pages_grows_with_the_text() -> None:
    talker = Talker(num_slots=2, num_pages=CONTEXT // PAGE, max_context=CONTEXT)
    talker.send(opening(1))
    talker.step()
    talker.send(text(1, FIRST_FRAMES - 1))  # one token for each frame but the first
    step(talker, FIRST_FRAMES)
    assert not talker.plan.decodes, "it is starved"
    talker.send(text(1, 1))
    talker.step()
    assert len(talker.plan.decodes) == len(talker.plan.pages) == 1


def test_pages_of_a_stream_that_ended_are_not_told_of() -> None:
    talker = Talker(num_slots=2, num_pages=CONTEXT // PAGE, max_context=CONTEXT)
    talker.send(opening(1))
    talker.step()
    talker.send(text(1, FIRST_FRAMES - 1))
    step(talker, FIRST_FRAMES)
    talker.send(text(1, 1), CancelStream(1), opening(2))  # which gets the same slot
    assert begun(talker.step()) == [2]
    assert not talker.plan.pages


class Outbox:
    def __init__(self) -> None:
        self.records: list[FrameRecord] = []

    def publish(self, records: list[FrameRecord]) -> None:
        self.records += records


def spoken(texts: list[list[int]], num_pages: int, *, is_ahead: bool = False) -> tuple[dict[int, Int16Array], int]:
    """All codes of streams whose texts come in pieces, now and then one; and how often one gave back what it had."""
    config = EngineConfig.of(CHECKPOINT.folder, num_slots=4, max_context=CONTEXT, runaway_repeated_frames=0)
    scheduler = Scheduler(config, CHECKPOINT, num_pages, FakeClock())
    runner = FakeTalkerRunner(CHECKPOINT, config, num_pages)
    runner.is_asynchronous = is_ahead
    outbox = Outbox()
    stepping = Stepping(outbox, scheduler, runner, ahead_from=1)  # type: ignore[arg-type]
    said: dict[int, list[Int16Array]] = {stream_id: [] for stream_id in range(1, len(texts) + 1)}
    ended: set[int] = set()
    num_yields = 0
    for stream_id in said:
        scheduler.on_record(opening(stream_id, trailing=()))
    for number in range(20_000):
        for stream_id, pieces in enumerate(texts, 1):
            if number % TURNS or stream_id in ended:
                continue
            if number // TURNS < len(pieces):
                scheduler.on_record(PushText(stream_id, (11,) * pieces[number // TURNS]))
            elif number // TURNS == len(pieces):
                scheduler.on_record(EndText(stream_id))
        stepping.turn()
        scheduler.check_conservation()
        records, outbox.records = outbox.records, []
        for record in records:
            if isinstance(record, FrameBatch):
                for stream_id, codes in zip(record.stream_ids.tolist(), record.codes, strict=True):
                    said[stream_id].append(codes)
            if isinstance(record, EndStream) and record.end.reason is FinishReason.YIELDED:
                num_yields += 1
                pieces = texts[record.stream_id - 1]
                scheduler.on_record(
                    opening(
                        record.stream_id,
                        trailing=(11,) * sum(pieces[: number // TURNS + 1]),
                        text_ended=number // TURNS >= len(pieces),
                        known_codes=np.array(said[record.stream_id], np.int16),
                    )
                )
            elif isinstance(record, EndStream):
                assert record.end.reason in (FinishReason.COMPLETED, FinishReason.RUNAWAY), record
                ended.add(record.stream_id)
        if len(ended) == len(texts):
            break
    assert len(ended) == len(texts), "all get through"
    return {stream_id: np.array(codes, np.int16) for stream_id, codes in said.items()}, num_yields


pieces = st.lists(st.integers(1, 40), min_size=1, max_size=8)


@settings(max_examples=30)
@given(st.lists(pieces, min_size=1, max_size=5))
def test_however_texts_grow_and_pages_run_short_every_stream_says_the_same(texts: list[list[int]]) -> None:
    enough, num_yields = spoken(texts, 5 * CONTEXT // PAGE)
    assert not num_yields
    for is_ahead in (False, True):
        short, _ = spoken(texts, CONTEXT // PAGE, is_ahead=is_ahead)
        for stream_id, codes in enough.items():
            assert np.array_equal(short[stream_id], codes)


def test_streams_that_outgrow_the_pages_take_turns() -> None:
    texts = [[2, 40, 40, 40, 40, 40]] * 4
    enough, _ = spoken(texts, 5 * CONTEXT // PAGE)
    short, num_yields = spoken(texts, CONTEXT // PAGE)
    assert num_yields >= 3
    assert all(np.array_equal(short[stream_id], enough[stream_id]) for stream_id in enough)
