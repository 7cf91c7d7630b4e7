"""What is decoded beside a call that is under way, and what becomes of streams that end meanwhile."""

import pytest

from sonorant.engine.code2wav.schedule.pace import RESERVE
from sonorant.engine.ipc.messages import EndServer, EndStream, FlushStream
from sonorant.engine.ipc.server_ids import server_of
from sonorant.engine.types import FinishReason, StreamEnd
from tests.engine.code2wav.hand_driven import FRAME_S, Decoder, end, frames, rows
from tests.fakes import begin_stream


def call_of_four_frames() -> Decoder:
    """Stream 1 has a call of four frames under way."""
    decoder = Decoder(num_slots=3)
    decoder.send(begin_stream(1), frames(0, 1))
    decoder.drain()
    decoder.send(*(frames(index, 1) for index in range(1, 5)), FlushStream(1))
    assert decoder.start() == [] and decoder.plan.codes.shape[1] == 4
    return decoder


def test_first_chunks_do_not_wait_for_the_call_under_way() -> None:
    decoder = call_of_four_frames()
    decoder.send(begin_stream(2), begin_stream(3), frames(0, 2, 3), frames(5, 1))
    assert rows(decoder.urgent()) == [(2, 0, 1), (3, 0, 1)]
    assert [first.stream_id for first in decoder.first_told] == [1, 2, 3]
    decoder.clock.now_s += 0.01
    decoder.send(frames(1, 2), FlushStream(2))
    assert decoder.urgent() == [], "the listener has enough to play"
    decoder.clock.now_s += FRAME_S * RESERVE
    assert rows(decoder.urgent()) == [(2, 1, 1)]
    assert rows(decoder.finish()) == [(1, 1, 4)]
    decoder.send(FlushStream(1))
    assert decoder.chunks() == [(1, 5, 1)]


def test_what_is_in_the_call_under_way_is_not_decoded_beside_it() -> None:
    decoder = Decoder()
    decoder.send(begin_stream(1), frames(0, 1))
    decoder.start()
    decoder.send(frames(1, 1), FlushStream(1))
    assert decoder.urgent() == []
    assert rows(decoder.finish()) == [(1, 0, 1)]
    assert decoder.chunks() == [(1, 1, 1)]


def test_a_first_chunk_waits_for_a_slot_that_the_call_under_way_has() -> None:
    decoder = Decoder(num_slots=1)
    decoder.send(begin_stream(1), frames(0, 1))
    decoder.start()
    decoder.send(end(1), begin_stream(2), frames(0, 2))
    assert decoder.urgent() == []
    assert rows(decoder.finish()) == [(1, 0, 1), (1,)]
    assert decoder.chunks() == [(2, 0, 1)]


@pytest.mark.parametrize("reason", [FinishReason.CANCELLED, FinishReason.COMPLETED])
def test_a_stream_that_ends_during_its_call_ends_behind_it(reason: FinishReason) -> None:
    decoder = call_of_four_frames()
    decoder.send(end(1, reason))
    assert decoder.urgent() == []
    assert rows(decoder.finish()) == [(1, 1, 4), (1,)]


def test_a_server_that_ends_during_a_call_has_ended_when_nothing_more_comes_for_it() -> None:
    decoder = call_of_four_frames()
    decoder.send(begin_stream(2), frames(0, 2), EndServer(server_of(1)))
    assert decoder.urgent() == [EndStream(2, StreamEnd(FinishReason.CANCELLED, 1, 0.0, 0.0, ""))]
    assert decoder.servers_ended == []
    assert rows(decoder.finish()) == [(1, 1, 4), (1,)]
    assert decoder.servers_ended == [server_of(1)] and decoder.batcher.num_streams == 0


def test_of_two_frames_a_listener_who_would_run_dry_gets_one_at_once() -> None:
    decoder = call_of_four_frames()
    decoder.send(begin_stream(2), frames(0, 2))
    assert rows(decoder.urgent()) == [(2, 0, 1)]
    decoder.send(frames(1, 2), frames(2, 2))
    decoder.clock.now_s += FRAME_S * RESERVE + 0.001
    assert rows(decoder.urgent()) == [(2, 1, 1)]
    assert decoder.urgent() == [], "now it has enough to play"


def test_urgent_calls_tell_nothing_about_how_long_others_take() -> None:
    decoder = call_of_four_frames()
    decoder.clock.now_s += 0.02
    decoder.finish()
    before_s = decoder.batcher._pace.margin_s
    decoder.send(*(frames(index, 1) for index in range(5, 9)), FlushStream(1))
    decoder.start()
    for stream_id in (2, 3):
        decoder.send(begin_stream(stream_id), frames(0, stream_id))
        assert rows(decoder.urgent()) == [(stream_id, 0, 1)]
    assert decoder.batcher._pace.margin_s == before_s > RESERVE * FRAME_S
