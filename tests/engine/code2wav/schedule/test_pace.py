"""How long a chunk may wait, and that the listeners of a whole schedule keep something in hand."""

import math

import pytest

from sonorant.engine.code2wav.schedule.pace import (
    DECAY,
    GROWTH,
    LEAST_CALL_FRAMES,
    LONGEST_CALL,
    MOST_CALL_FRAMES,
    RESERVE,
    Pace,
)
from sonorant.engine.ipc.messages import PcmBatch
from tests.engine.code2wav.hand_driven import FRAME_S, Decoder, frames
from tests.fakes import begin_stream

CALL_S = 0.002
SERVED = (1, 2, 4, 8, 12)


def test_the_margin_is_the_longest_of_the_last_steps_and_calls_and_a_reserve() -> None:
    pace = Pace(FRAME_S)
    assert pace.margin_s == pytest.approx(RESERVE * FRAME_S)
    pace.note_step(0.03)
    pace.note_step(0.01)
    pace.note_call(0.005, 12)
    assert pace.margin_s == pytest.approx(DECAY * 0.03 + 0.005 + RESERVE * FRAME_S)


def test_nobody_waits_for_a_step_that_takes_longer_than_a_frame_lasts() -> None:
    pace = Pace(FRAME_S)
    pace.note_step(5.0)
    assert pace.margin_s == pytest.approx((1 + RESERVE) * FRAME_S)


def test_a_call_holds_what_fits_into_a_step() -> None:
    pace = Pace(FRAME_S)
    pace.note_call(0.020, 300)
    assert pace.max_call_frames == MOST_CALL_FRAMES, "no step is known"
    pace.note_step(0.005)
    pace.note_call(0.010, 300)
    assert pace.max_call_frames == pytest.approx(150)
    pace.note_call(0.004, 100)
    assert pace.max_call_frames == pytest.approx(150), "the call was much smaller: nothing is learnt from it"
    pace.note_call(0.004, 148)
    assert pace.max_call_frames == pytest.approx(150 * GROWTH)
    pace.note_call(1.0, 150)
    assert pace.max_call_frames == LEAST_CALL_FRAMES
    assert [pace.max_rows(12, waiting) for waiting in (1, 8, 9)] == [4, 4, math.inf]
    assert pace.max_rows(100, 2) == 1


def test_a_call_beside_long_steps_is_shorter_than_they_are() -> None:
    pace = Pace(FRAME_S)
    pace.note_step(FRAME_S / 2)
    pace.note_call(LONGEST_CALL * FRAME_S, 500)
    assert pace.max_call_frames == MOST_CALL_FRAMES
    pace.note_call(2 * LONGEST_CALL * FRAME_S, 1000)
    assert pace.max_call_frames == pytest.approx(500)


@pytest.mark.parametrize("num_streams", [1, 3])
@pytest.mark.parametrize("step_s", [0.003, 0.0065, 0.02, 0.035, 0.05, 0.065])
def test_listeners_keep_the_reserve_unless_the_talker_is_late(step_s: float, num_streams: int) -> None:
    """Streams that begin one after the other, for 60 frames each. A call takes a while, during which the next waits."""
    decoder = Decoder(chunk_ramp=SERVED, num_slots=num_streams)
    begun: dict[int, float] = {}  # when the listener began to play
    heard = dict.fromkeys(range(1, num_streams + 1), 0)
    leads = []

    def call_until(stop_s: float) -> None:
        clock = decoder.clock
        while True:
            plan = decoder.batcher.next_batch()
            if not plan.slots:
                wait_s = decoder.batcher.wait_s
                if wait_s is None or clock.now_s + wait_s >= stop_s:
                    clock.now_s = max(clock.now_s, stop_s)
                    return
                clock.now_s += wait_s + 1e-6
                continue
            for slot, num_frames in plan.new_slots:
                decoder.runner.reset(slot, num_frames)
            samples = decoder.runner.decode(plan.slots, plan.codes)
            clock.now_s += CALL_S
            for record in decoder.batcher.apply(plan, samples):
                if isinstance(record, PcmBatch):
                    for stream_id in record.stream_ids.tolist():
                        began_s = begun.setdefault(stream_id, clock.now_s)
                        if heard[stream_id]:
                            leads.append(began_s + heard[stream_id] * FRAME_S - clock.now_s)
                        heard[stream_id] += record.num_frames

    start_s = decoder.clock.now_s
    for step in range(1, 61 + 7 * num_streams):
        call_until(start_s + step * step_s)
        for stream_id in heard:
            index = step - 7 * stream_id
            if index == 0:
                decoder.send(begin_stream(stream_id))
            if 0 <= index < 60:
                decoder.send(frames(index, stream_id, step_s=step_s))
    # The second frame is there one step after the first. From then on a talker that keeps up is ahead.
    late_s = min(RESERVE * FRAME_S, FRAME_S - step_s)
    assert len(leads) >= 4 * num_streams and min(leads) >= late_s - num_streams * CALL_S
