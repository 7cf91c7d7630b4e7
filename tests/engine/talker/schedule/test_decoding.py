"""The columns that are kept from step to step are those that one would build anew for each step."""

from hypothesis import given
from hypothesis import strategies as st

from sonorant.engine.talker.schedule.decoding import DecodingStreams
from sonorant.engine.talker.schedule.rows import DecodeRow, DecodeRows
from sonorant.engine.talker.schedule.stream import TalkerStream
from tests.fakes import open_stream

PAD = 7
NUM_SLOTS = 6


def built(stream: TalkerStream) -> DecodeRow:
    frame, text = stream.num_frames, stream.trailing
    text_id = text[frame - 1] if frame <= len(text) else PAD
    position = stream.first_position + frame
    return DecodeRow(stream.slot, text_id, position, frame, frame >= stream.eos_from, stream.watched)


def stream_of(stream_id: int, num_text_ids: int, num_frames: int) -> TalkerStream:
    """Every third one is a background stream."""
    opened = open_stream(stream_id, min_frames=5, is_background=stream_id % 3 == 0)
    stream = TalkerStream.opened(opened, frames_per_token=0, pad_id=PAD)
    stream.slot = stream_id % NUM_SLOTS
    stream.trailing = list(range(100, 100 + num_text_ids))
    stream.num_frames = stream.num_started = min(num_frames, num_text_ids)
    stream.granted_frames = 10**6
    stream.update_limits()
    return stream


@given(st.lists(st.tuples(st.sampled_from("acdptw"), st.integers(0, 30), st.integers(1, 12)), max_size=80))
def test_any_order_of_events(events: list[tuple[str, int, int]]) -> None:
    decoding = DecodingStreams(NUM_SLOTS, PAD)
    next_id = 1
    for kind, number, size in events:
        streams = list(decoding)
        assert streams == sorted(streams, key=lambda each: each.is_background), "interactive ones come first"
        assert decoding.num_interactive == sum(not each.is_background for each in streams)
        stream = streams[number % len(streams)] if streams else None
        if kind == "a" and len(decoding) < NUM_SLOTS:
            added = stream_of(next_id, size, 1 + number % size)
            decoding.add(added)
            assert added in decoding
            next_id += 1
        elif stream is None:
            continue
        elif kind == "d":
            decoding.discard(stream)
            decoding.discard(stream)  # a second time does nothing
            assert stream not in decoding
        elif kind == "c":
            stream.text_ended = True
            stream.update_limits()
            decoding.changed(stream)
        elif kind == "p" and not stream.text_ended:
            stream.trailing.extend(range(200, 200 + size))
            decoding.changed(stream)
        elif kind == "w":
            stream.watched = size
            decoding.changed(stream)
        elif kind == "t":
            with_background = bool(number % 2)
            before = [each for each in decoding if with_background or not each.is_background]
            expected = [built(each) for each in before]
            rows, stepped = decoding.take_rows(with_background)
            assert (stepped, list(rows)) == (before, expected)
            for each in stepped:
                each.num_frames += 1
                assert (each in decoding) == (each.num_frames < each.stop_at)
                assert each in decoding or each.num_started == each.num_frames


def test_rows_as_columns_are_a_sequence() -> None:
    rows = [DecodeRow(1, 2, 3, 4, True), DecodeRow(5, 6, 7, 8, False, watched=9)]
    columns = DecodeRows.of(rows)
    assert list(columns) == rows and columns[-1] == rows[1] and list(columns[1:]) == rows[1:]
    assert DecodeRows.of(columns) is columns
    assert len(DecodeRows.of([])) == 0 and not DecodeRows.of([])
