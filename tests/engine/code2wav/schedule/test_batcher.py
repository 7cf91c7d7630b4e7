"""Chunk by chunk: what is decoded when, in which company, and what becomes of ends."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest

from sonorant.engine.code2wav.schedule.batcher import GATHER
from sonorant.engine.code2wav.schedule.pace import DECAY, RESERVE
from sonorant.engine.code2wav.schedule.stream import IN_HAND_FRAMES
from sonorant.engine.ipc.messages import (
    BeginStream,
    EndStream,
    FirstChunk,
    FlushStream,
    PcmBatch,
    TextPositions,
)
from sonorant.engine.types import FinishReason, StreamBudget
from tests.engine.code2wav.hand_driven import FRAME_S, Decoder, codes_of, end, frames
from tests.fakes import (
    CONTEXT,
    FRAME_SAMPLES,
    begin_stream,
    expected_pcm,
)

SERVED = (1, 2, 4, 8, 12)


def chunks_at(step_s: float, num_frames: int) -> list[int]:
    """The sizes of the chunks of a stream alone, without what its end leaves, if the talker takes so long for a frame.

    Nobody waits: the loop asks again when the batcher says. Calls take no time.
    """
    decoder = Decoder(chunk_ramp=SERVED)
    decoder.send(begin_stream(1))
    found = []
    for index in range(num_frames):
        next_s = decoder.clock.now_s + step_s
        while (wait_s := decoder.batcher.wait_s) is not None and decoder.clock.now_s + wait_s < next_s:
            decoder.clock.now_s += wait_s + 1e-6
            found += decoder.chunks()
        decoder.clock.now_s = next_s
        decoder.send(frames(index, 1, step_s=step_s))
        found += decoder.chunks()
    return [size for _, _, size in found]


@pytest.mark.parametrize(
    ("step_s", "sizes"),
    [
        (0.003, [1, 4, 12, 12, 12]),
        (0.0065, [1, 4, 12, 12, 12]),
        (0.02, [1, 1, 4, 12, 12]),
        (0.038, [1, 1, 1, 2, 4, 8, 12]),
        (0.07, [1] * 17),
        (0.2, [1] * 41),
    ],
)
def test_chunks_grow_with_what_the_listener_has_to_play(step_s: float, sizes: list[int]) -> None:
    assert chunks_at(step_s, 41)[: len(sizes)] == sizes


def test_a_backlog_is_decoded_in_chunks_that_grow() -> None:
    decoder = Decoder(chunk_ramp=SERVED)
    decoder.send(begin_stream(1), *(frames(index, 1) for index in range(41)), end(1))
    assert decoder.chunks() == [(1, 0, 1), (1, 1, 4), (1, 5, 12), (1, 17, 12), (1, 29, 12), (1,)]


@pytest.mark.parametrize(("num_left", "calls"), [(1, [1]), (3, [4]), (4, [4]), (5, [8]), (9, [12]), (13, [12, 1])])
def test_the_last_chunk_is_padded_and_nothing_of_the_padding_goes_out(num_left: int, calls: list[int]) -> None:
    decoder = Decoder(chunk_ramp=SERVED)
    num_frames = 5 + num_left
    decoder.send(begin_stream(1), *(frames(index, 1) for index in range(num_frames)), end(1))
    *records, _ = decoder.drain()
    assert [size for _, size in decoder.runner.calls] == [1, 4, *calls]
    codes = np.stack([codes_of(1, index) for index in range(num_frames)])
    assert np.concatenate([record.codes[0] for record in records]).tolist() == codes.tolist()
    assert np.concatenate([record.samples[0] for record in records]).tolist() == expected_pcm(codes).tolist()


def test_on_the_cpu_nothing_is_padded() -> None:
    decoder = Decoder(chunk_ramp=SERVED, pass_sizes=range(1, 97))
    decoder.send(begin_stream(1), *(frames(index, 1) for index in range(12)), end(1))
    decoder.drain()
    assert decoder.runner.calls == [(1, 1), (1, 4), (1, 7)]


def test_a_padded_chunk_goes_with_whole_ones() -> None:
    decoder = Decoder(chunk_ramp=SERVED)
    decoder.send(*(begin_stream(stream_id) for stream_id in (1, 2, 3)), frames(0, 1, 2, 3))
    decoder.drain()
    decoder.send(*(frames(index, 1, 2) for index in range(1, 5)), *(frames(index, 3) for index in range(1, 4)), end(3))
    assert sorted(decoder.chunks()) == [(1, 1, 4), (2, 1, 4), (3,), (3, 1, 3)]
    assert decoder.runner.calls == [(3, 1), (3, 4)]


def test_whole_chunks_wait_a_little_for_one_another() -> None:
    decoder = Decoder(chunk_ramp=SERVED)
    decoder.send(begin_stream(1), begin_stream(2), *(frames(index, 1, 2) for index in range(5)), FlushStream(1))
    decoder.send(FlushStream(2))
    decoder.drain()
    before = len(decoder.runner.calls)
    decoder.send(*(frames(index, 1) for index in range(5, 17)))
    assert decoder.chunks() == [] and decoder.batcher.wait_s == pytest.approx(GATHER * FRAME_S)
    decoder.clock.now_s += 0.01
    decoder.send(*(frames(index, 2) for index in range(5, 17)))
    assert decoder.chunks() == [] and decoder.batcher.wait_s == pytest.approx(GATHER * FRAME_S - 0.01)
    decoder.clock.now_s += decoder.batcher.wait_s + 1e-6
    assert sorted(decoder.chunks()) == [(1, 5, 12), (2, 5, 12)]
    assert decoder.runner.calls[before:] == [(2, 12)]


@pytest.mark.parametrize(("num_others", "pass_sizes"), [(0, SERVED), (1, range(1, 97))])
def test_who_is_alone_waits_for_nobody_and_nobody_does_on_the_cpu(num_others: int, pass_sizes: Sequence[int]) -> None:
    decoder = Decoder(chunk_ramp=SERVED, pass_sizes=pass_sizes)
    decoder.send(*(begin_stream(2 + number) for number in range(num_others)))
    decoder.send(begin_stream(1), *(frames(index, 1) for index in range(17)))
    assert decoder.chunks() == [(1, 0, 1), (1, 1, 4), (1, 5, 12)]


def test_what_is_left_of_a_flush_is_due_as_well() -> None:
    decoder = Decoder(chunk_ramp=SERVED)
    decoder.send(begin_stream(1), *(frames(index, 1) for index in range(12)), FlushStream(1))
    assert decoder.chunks() == [(1, 0, 1), (1, 1, 4), (1, 5, 4), (1, 9, 2), (1, 11, 1)]


def test_a_listener_is_not_left_to_run_dry() -> None:
    decoder = Decoder(chunk_ramp=(1, 2, 8))
    decoder.send(begin_stream(1), frames(0, 1), frames(1, 1, step_s=0.03), FlushStream(1))
    decoder.chunks()  # 160 ms of audio
    decoder.send(frames(2, 1, step_s=0.01))
    assert decoder.chunks() == []
    step_s = DECAY * 0.03  # for the next frame, with the reserve on top
    assert decoder.batcher.wait_s == pytest.approx(2 * FRAME_S - step_s - RESERVE * FRAME_S)
    decoder.clock.now_s += decoder.batcher.wait_s + 1e-6
    assert decoder.chunks() == [(1, 2, 1)]
    assert decoder.batcher.wait_s is None


def test_slow_calls_begin_in_time() -> None:
    decoder = Decoder(chunk_ramp=(5, 8))
    decoder.send(begin_stream(1), *(frames(index, 1) for index in range(5)))
    plan = decoder.batcher.next_batch()
    decoder.clock.now_s += 0.15
    decoder.batcher.apply(plan, np.zeros((len(plan.slots), 5 * FRAME_SAMPLES), np.int16))
    decoder.send(frames(5, 1))
    assert not decoder.batcher.next_batch().slots
    assert decoder.batcher.wait_s == pytest.approx(5 * FRAME_S - RESERVE * FRAME_S - 0.15)


def test_before_the_first_chunk_nobody_runs_dry() -> None:
    decoder = Decoder(chunk_ramp=(3, 8))
    decoder.send(begin_stream(1), frames(0, 1), frames(1, 1))
    decoder.clock.now_s += 10
    assert decoder.chunks() == [] and decoder.batcher.wait_s is None
    decoder.send(frames(2, 1))
    assert decoder.chunks() == [(1, 0, 3)]


def test_a_flush_decodes_what_is_there_and_ends_with_the_next_frame() -> None:
    decoder = Decoder(chunk_ramp=(4,), pass_sizes=(1, 2, 4))
    decoder.send(begin_stream(1), frames(0, 1), frames(1, 1), FlushStream(1))
    assert decoder.chunks() == [(1, 0, 2)]
    decoder.send(frames(2, 1))
    assert decoder.chunks() == []


def flushed_after(num_frames: int, *, is_blocked: bool) -> Decoder:
    """Stream 1 has made frames, all are decoded, and would have been heard long ago if it had spoken at once."""
    decoder = Decoder(chunk_ramp=(num_frames, 12), pass_sizes=range(1, 97))
    decoder.send(begin_stream(1), *(frames(index, 1) for index in range(num_frames)), FlushStream(1, is_blocked))
    assert decoder.chunks() == [(1, 0, num_frames)]
    decoder.clock.now_s += 5
    return decoder


def test_credit_that_comes_in_a_lump_becomes_one_chunk() -> None:
    decoder = flushed_after(12, is_blocked=True)
    for index in range(12, 20):
        decoder.send(frames(index, 1))
        assert decoder.chunks() == []
        decoder.clock.now_s += 0.01
    decoder.send(FlushStream(1, is_blocked=True))
    assert decoder.chunks() == [(1, 12, 8)]


def test_a_starved_stream_may_have_left_its_listener_without_audio() -> None:
    decoder = flushed_after(12, is_blocked=False)
    decoder.send(frames(12, 1))
    assert decoder.chunks() == [(1, 12, 1)]


@pytest.mark.parametrize(("num_frames", "in_hand"), [(12, IN_HAND_FRAMES), (3, 3)])
def test_a_stream_that_was_blocked_waits_as_long_as_its_listener_can_for_certain(num_frames: int, in_hand: int) -> None:
    decoder = flushed_after(num_frames, is_blocked=True)
    decoder.send(frames(num_frames, 1))
    assert decoder.chunks() == []
    assert decoder.batcher.wait_s == pytest.approx((in_hand - RESERVE) * FRAME_S)
    decoder.clock.now_s += decoder.batcher.wait_s + 1e-6
    assert decoder.chunks() == [(1, num_frames, 1)]


def test_frames_that_were_not_decoded_yet_are_nothing_to_play() -> None:
    decoder = flushed_after(12, is_blocked=True)
    decoder.send(*(frames(index, 1) for index in range(12, 15)), FlushStream(1, is_blocked=True))
    decoder.clock.now_s += 5
    decoder.send(frames(15, 1, step_s=0.05))
    assert decoder.chunks() == [(1, 12, 4)]


def test_one_call_takes_rows_of_equally_many_frames_most_urgent_first() -> None:
    decoder = Decoder(max_decode_batch=2)
    decoder.send(begin_stream(1), frames(0, 1))
    assert decoder.chunks() == [(1, 0, 1)]
    decoder.send(*(frames(index, 1) for index in (1, 2)), FlushStream(1))
    for stream_id in (2, 3, 4):
        decoder.clock.now_s += 0.001
        decoder.send(begin_stream(stream_id), frames(0, stream_id))
    # 2, 3 and 4 have been silent since they began; 1 still has something to play.
    assert decoder.chunks() == [(2, 0, 1), (3, 0, 1), (4, 0, 1), (1, 1, 2)]
    assert decoder.runner.calls == [(1, 1), (2, 1), (1, 1), (1, 2)]


def test_everybody_gets_a_turn_when_there_is_too_much_to_do() -> None:
    decoder = Decoder(max_decode_batch=1, chunk_ramp=(1,))
    decoder.send(begin_stream(1), begin_stream(2), begin_stream(3))
    served = []
    for index in range(12):
        decoder.send(frames(index, 1, 2, 3))
        (pcm,) = decoder.turn()
        assert isinstance(pcm, PcmBatch)
        served += pcm.stream_ids.tolist()
        decoder.clock.now_s += 0.2
    assert served == [1, 2, 3] * 4


def test_the_first_chunk_goes_with_the_times_of_its_way() -> None:
    decoder = Decoder()
    reference = codes_of(9, 0)[None]
    decoder.send(BeginStream(1, 990.0, 991.0, reference))
    decoder.turn()
    decoder.clock.now_s = 1005.0
    decoder.send(dataclasses.replace(frames(0, 1), began_s=993.0, ended_s=996.0))
    decoder.clock.now_s = 1006.0
    plan = decoder.batcher.next_batch()
    decoder.clock.now_s = 1008.0
    first, pcm = decoder.batcher.apply(plan, decoder.runner.decode(plan.slots, plan.codes))
    assert isinstance(pcm, PcmBatch) and pcm.first_frames.tolist() == [0]
    assert isinstance(first, FirstChunk) and first.stream_id == 1
    budget = first.budget(delivered_s=1011.5)
    assert budget == StreamBudget(990, 1, 2, 3, 9, 1, 2, 3.5)
    assert budget.total_s == 1011.5 - 990
    decoder.send(frames(1, 1), end(1))
    assert decoder.chunks() == [(1, 1, 1), (1,)] and not decoder.first_told


@pytest.mark.parametrize("reason", [FinishReason.CANCELLED, FinishReason.FAILED])
def test_nothing_is_decoded_for_a_stream_that_nobody_hears(reason: FinishReason) -> None:
    decoder = Decoder()
    decoder.send(begin_stream(1), frames(0, 1), frames(1, 1), end(1, reason))
    assert decoder.chunks() == [(1,)]
    assert decoder.runner.calls == []


def test_streams_that_end_without_a_frame() -> None:
    decoder = Decoder()
    decoder.send(end(1, FinishReason.CANCELLED), begin_stream(2), end(2), begin_stream(3, codes_of(3, 0)[None]), end(3))
    assert decoder.chunks() == [(1,), (2,), (3,)]
    assert decoder.runner.calls == []


def test_a_stream_waits_for_a_slot_until_an_ended_one_is_drained() -> None:
    decoder = Decoder(num_slots=1)
    decoder.send(begin_stream(1), frames(0, 1), frames(1, 1), end(1), begin_stream(2), frames(0, 2))
    assert decoder.chunks() == [(1, 0, 1), (1, 1, 1), (1,), (2, 0, 1)]


def test_a_slot_is_reset_before_the_first_frame_comes() -> None:
    decoder = Decoder(num_slots=2)
    decoder.send(begin_stream(1))
    assert decoder.turn() == [] and len(decoder.plan.new_slots) == 1
    decoder.send(frames(0, 1))
    assert decoder.chunks() == [(1, 0, 1)] and decoder.plan.new_slots == []


def test_a_stream_that_begins_leaves_free_slots_to_frames_that_are_there() -> None:
    decoder = Decoder(num_slots=1)
    decoder.send(begin_stream(1), begin_stream(2), frames(0, 2))
    assert decoder.chunks() == [(2, 0, 1)]
    decoder.send(end(2), frames(0, 1))
    assert decoder.chunks() == [(2,), (1, 0, 1)]


def test_too_few_slots_are_refused() -> None:
    with pytest.raises(ValueError, match="2 Code2Wav slots for 3 talker slots"):
        Decoder(num_slots=2, num_talker_slots=3)


@pytest.mark.parametrize("ramp", [(), (1, 0)])
def test_a_ramp_that_stands_still_is_refused(ramp: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="chunk_ramp"):
        Decoder(chunk_ramp=ramp)


def test_bugs_of_the_sender_raise() -> None:
    decoder = Decoder()
    decoder.send(begin_stream(1))
    with pytest.raises(ValueError, match="stream 1 began twice"):
        decoder.send(begin_stream(1))
    with pytest.raises(ValueError, match="stream 1 got frame 1 where frame 0 was due"):
        decoder.send(frames(1, 1))
    with pytest.raises(KeyError):
        decoder.send(frames(0, 2))


def test_positions_go_ahead_of_the_audio_and_wake_nobody_alone() -> None:
    decoder = Decoder(chunk_ramp=(2,))
    batcher = decoder.batcher
    decoder.send(begin_stream(1))
    for index in range(3):
        told = TextPositions(np.array([1]), np.array([index], np.int32), np.array([index + 0.5], np.float32))
        batcher.on_record(told)
        assert not batcher.next_batch().records
        decoder.send(frames(index, 1))
        if index == 1:
            plan = batcher.next_batch()
            positions, *_, pcm = [*plan.records, *batcher.apply(plan, np.zeros((1, 2 * FRAME_SAMPLES), np.int16))]
            assert isinstance(positions, TextPositions) and isinstance(pcm, PcmBatch)
            assert positions.frame_indices.tolist() == [0, 1] and positions.positions.tolist() == [0.5, 1.5]
    decoder.send(end(1))
    plan = batcher.next_batch()
    positions, *_, over = [*plan.records, *batcher.apply(plan, np.zeros((1, FRAME_SAMPLES), np.int16))]
    assert isinstance(positions, TextPositions) and positions.frame_indices.tolist() == [2]
    assert isinstance(over, EndStream)


def test_silence_that_is_not_sent_is_nothing_to_play() -> None:
    decoder = Decoder(chunk_ramp=SERVED, context=dataclasses.replace(CONTEXT, silent_first_frames=2))
    decoder.send(begin_stream(1))
    for index in range(3):
        decoder.send(frames(index, 1, step_s=0.003))
        assert decoder.chunks() == [(1, index, 1)], "as soon as it is there"
    decoder.send(frames(3, 1, step_s=0.003))
    assert decoder.chunks() == [], "the listener has a frame in hand"
