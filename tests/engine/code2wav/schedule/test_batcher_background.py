"""Nobody waits for the audio of background streams: it comes in large chunks, when no other stream is due."""

import pytest

from sonorant.engine.code2wav.schedule.batcher import GATHER
from sonorant.engine.ipc.messages import BeginStream, FlushStream, FrameBatch
from sonorant.engine.types import FinishReason
from tests.engine.code2wav.hand_driven import FRAME_S, Decoder, end, frames, rows
from tests.fakes import begin_stream

SERVED = (1, 2, 4, 8, 12)


def background_stream(stream_id: int, num_frames: int) -> list[BeginStream | FrameBatch]:
    """A background stream and its first frames."""
    return [begin_stream(stream_id, is_background=True), *(frames(index, stream_id) for index in range(num_frames))]


@pytest.mark.parametrize("pass_sizes", [SERVED, range(1, 97)])
def test_all_chunks_are_as_large_as_possible(pass_sizes: tuple[int, ...]) -> None:
    decoder = Decoder(chunk_ramp=SERVED, pass_sizes=pass_sizes)
    decoder.send(*background_stream(1, 11))
    assert decoder.chunks() == []
    decoder.clock.now_s += 100
    assert decoder.chunks() == [] and decoder.batcher.wait_s is None, "nobody runs dry"
    decoder.send(*(frames(index, 1) for index in range(11, 37)))
    assert decoder.chunks() == [(1, 0, 12), (1, 12, 12), (1, 24, 12)]
    decoder.send(frames(37, 1), end(1))
    assert decoder.chunks() == [(1, 36, 2), (1,)]


def test_a_flush_decodes_what_is_there() -> None:
    decoder = Decoder(chunk_ramp=SERVED)
    decoder.send(*background_stream(1, 7), FlushStream(1, is_blocked=True))
    assert decoder.chunks() == [(1, 0, 4), (1, 4, 2), (1, 6, 1)]
    decoder.send(frames(7, 1))
    assert decoder.chunks() == [] and decoder.batcher.wait_s is None


def test_whole_chunks_of_background_streams_wait_a_little_for_one_another() -> None:
    decoder = Decoder(chunk_ramp=SERVED)
    decoder.send(*(begin_stream(stream_id, is_background=True) for stream_id in (1, 2, 3)))
    decoder.send(*(frames(index, 1, 3) for index in range(12)), *(frames(index, 2) for index in range(11)))
    assert decoder.chunks() == []
    decoder.send(frames(11, 2))
    decoder.clock.now_s += GATHER * FRAME_S
    assert sorted(decoder.chunks()) == [(1, 0, 12), (2, 0, 12), (3, 0, 12)]
    assert decoder.runner.calls == [(3, 12)]


def test_they_come_behind_all_others_that_are_due() -> None:
    decoder = Decoder(chunk_ramp=SERVED, max_decode_batch=1)
    decoder.send(*background_stream(1, 3), FlushStream(1))
    decoder.clock.now_s += 1
    for stream_id in (2, 3):
        decoder.send(begin_stream(stream_id), frames(0, stream_id))
    assert decoder.chunks() == [(2, 0, 1), (3, 0, 1), (1, 0, 2), (1, 2, 1)]


def test_they_join_a_call_of_their_size() -> None:
    decoder = Decoder(chunk_ramp=SERVED)
    decoder.send(begin_stream(1), frames(0, 1), *background_stream(2, 3), FlushStream(2))
    assert rows(decoder.turn()) == [(1, 0, 1)]
    decoder.send(*(frames(index, 1) for index in (1, 2)), FlushStream(1))
    assert rows(decoder.turn()) == [(1, 1, 2), (2, 0, 2)]


def test_they_are_never_urgent() -> None:
    decoder = Decoder(chunk_ramp=SERVED)
    decoder.send(begin_stream(1), frames(0, 1))
    decoder.start()
    decoder.send(*background_stream(2, 1), FlushStream(2), begin_stream(3), frames(0, 3))
    assert rows(decoder.urgent()) == [(3, 0, 1)]
    decoder.finish()
    assert decoder.chunks() == [(2, 0, 1)]


def test_one_that_has_ended_does_not_keep_its_slot_from_others() -> None:
    """Stream 2 has its talker slot, and stream 3 always has something to decode."""
    decoder = Decoder(chunk_ramp=SERVED, num_slots=2, max_decode_batch=1)
    decoder.send(*background_stream(1, 0), begin_stream(3))
    assert decoder.turn() == [] and len(decoder.plan.new_slots) == 2
    decoder.send(*(frames(index, 1) for index in range(11)), frames(0, 3), end(1, FinishReason.YIELDED))
    assert rows(decoder.turn()) == [(3, 0, 1)]
    decoder.send(begin_stream(2), frames(0, 2), frames(1, 3), FlushStream(3))
    assert rows(decoder.turn()) == [(1, 0, 11), (1,)]
    assert rows(decoder.turn()) == [(2, 0, 1)]


def test_while_somebody_listens_no_call_of_background_streams_is_long() -> None:
    """Without listeners, full calls are the quickest way for so many."""
    num_rows = []
    for is_listened in (True, False):
        decoder = Decoder(chunk_ramp=SERVED, num_slots=33, max_decode_batch=32)
        decoder.send(begin_stream(40), frames(0, 40, step_s=0.001))
        decoder.start()
        decoder.clock.now_s += 1  # a slow call, so the next ones have the least that calls may have
        decoder.finish()
        if not is_listened:
            decoder.send(end(40))
        ids = range(32)
        decoder.send(*(begin_stream(stream_id, is_background=True) for stream_id in ids))
        decoder.send(*(frames(index, *ids) for index in range(12)))
        decoder.clock.now_s += 1
        decoder.turn()
        num_rows.append(len(decoder.plan.slots))
    assert num_rows == [4, 32]
