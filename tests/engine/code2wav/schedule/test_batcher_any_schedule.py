"""Whatever comes in whatever order, all frames are decoded once and in order, and every stream ends once."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sonorant.engine.code2wav.schedule.chunks import GROWTH
from sonorant.engine.ipc.messages import EndStream, FlushStream, PcmBatch
from sonorant.engine.types import FinishReason
from tests.engine.code2wav.hand_driven import Decoder, codes_of, end
from tests.fakes import FRAME_SAMPLES, begin_stream, expected_pcm, frame_batch

NUM_STREAMS = 7
STORED = (6, 7)  # of codes that come from elsewhere: they may wait for one another, and nobody for them

actions = st.lists(
    st.tuples(
        st.sampled_from(
            [*["frame"] * 3, "all", "flush", "block", "end", "cancel", "turn", "turn", "start", "urgent", "wait"]
        ),
        st.integers(1, NUM_STREAMS),
    ),
    min_size=40,
    max_size=120,
)


@settings(max_examples=75)
@given(
    actions=actions,
    chunk_ramp=st.lists(st.integers(1, 6), min_size=1, max_size=4).map(tuple),
    max_decode_batch=st.integers(1, 4),
    num_slots=st.integers(1, 4),
    stored_streams=st.integers(1, 2),
    kept_references=st.integers(0, 2),
    is_any_size_a_pass=st.booleans(),  # as on the CPU
    step_s=st.sampled_from([0.0, 0.006, 0.04, 0.2]),
    num_reference_frames=st.lists(st.sampled_from([0, 1, 5, 40]), min_size=NUM_STREAMS, max_size=NUM_STREAMS),
    batch=st.sets(st.integers(1, NUM_STREAMS)).map(lambda streams: streams - set(STORED)),
)
def test_any_schedule(
    actions: list[tuple[str, int]],
    chunk_ramp: tuple[int, ...],
    max_decode_batch: int,
    num_slots: int,
    stored_streams: int,
    kept_references: int,
    is_any_size_a_pass: bool,
    step_s: float,
    num_reference_frames: list[int],
    batch: set[int],
) -> None:
    decoder = Decoder(
        num_slots=num_slots,
        stored_streams=stored_streams,
        chunk_ramp=chunk_ramp,
        max_decode_batch=max_decode_batch,
        kept_references=kept_references,
        pass_sizes=range(1, 97) if is_any_size_a_pass else (),
    )
    references = {  # of equally many frames are the same
        stream_id: np.stack([codes_of(9, index) for index in range(count)]) if count else None
        for stream_id, count in zip(range(1, NUM_STREAMS + 1), num_reference_frames, strict=True)
    }
    made: dict[int, int] = {}  # frames sent, of the streams that have begun
    reasons: dict[int, FinishReason] = {}  # of those that have ended
    heard: dict[int, list[int]] = {}
    chunks: dict[int, list[int]] = {}
    answers: dict[int, FinishReason] = {}

    is_under_way = False  # a call that was started and is not finished

    def turn() -> bool:
        nonlocal is_under_way
        take(decoder.finish() if is_under_way else decoder.turn())
        is_under_way = False
        return bool(decoder.plan.slots)

    def start() -> None:
        nonlocal is_under_way
        if not is_under_way:
            take(decoder.start())
            is_under_way = bool(decoder.plan.slots)

    def take(records: Sequence[PcmBatch | EndStream]) -> None:
        for record in records:
            if isinstance(record, EndStream):
                assert record.stream_id not in answers
                answers[record.stream_id] = record.end.reason
                continue
            rows = (record.stream_ids, record.first_frames, record.samples, record.codes)
            for stream_id, first, samples, codes in zip(*(row.tolist() for row in rows), strict=True):
                assert stream_id not in answers
                assert first * FRAME_SAMPLES == len(heard.setdefault(stream_id, []))
                assert [first.stream_id for first in decoder.first_told].count(stream_id) == 1
                assert codes == [codes_of(stream_id, first + number).tolist() for number in range(record.num_frames)]
                heard[stream_id] += samples
                chunks.setdefault(stream_id, []).append(record.num_frames)

    def make(stream_ids: Sequence[int]) -> None:
        """One frame of each, in one batch, as the talker does."""
        ids = [stream_id for stream_id in stream_ids if stream_id not in reasons]
        # While ended streams are drained others may wait, but the talker never has more than its slots at a time.
        live = [stream_id for stream_id in made if stream_id not in reasons and stream_id not in STORED]
        for stream_id in ids:
            if stream_id not in made and (stream_id in STORED or len(live) < num_slots):
                kind = {"is_stored": stream_id in STORED, "is_background": stream_id in batch}
                decoder.send(begin_stream(stream_id, references[stream_id], **kind))
                made[stream_id] = 0
                live += [stream_id] * (stream_id not in STORED)
        ids = [stream_id for stream_id in ids if stream_id in made]
        if ids:
            codes = np.stack([codes_of(stream_id, made[stream_id]) for stream_id in ids])
            decoder.send(replace(frame_batch(ids, [made[each] for each in ids], codes), ended_s=step_s))
        for stream_id in ids:
            made[stream_id] += 1

    def stop(stream_id: int, reason: FinishReason) -> None:
        if stream_id not in reasons:
            reasons[stream_id] = reason
            decoder.send(end(stream_id, reason))

    for action, stream_id in actions:
        match action:
            case "frame":
                make([stream_id])
            case "all":
                make(range(1, NUM_STREAMS + 1))
            case "flush" if stream_id in made and stream_id not in reasons:
                decoder.send(FlushStream(stream_id))
            case "block" if stream_id in made and stream_id not in reasons:
                decoder.send(FlushStream(stream_id, is_blocked=True))
            case "end":
                stop(stream_id, FinishReason.COMPLETED)
            case "cancel":
                stop(stream_id, FinishReason.CANCELLED)
            case "turn":
                turn()
            case "start":
                start()
            case "urgent" if is_under_way:
                urgent = decoder.urgent()
                audio = [record for record in urgent if isinstance(record, PcmBatch)]
                assert not any(batch & set(record.stream_ids.tolist()) for record in audio)
                take(urgent)
            case "wait":
                decoder.clock.now_s += 0.05 * stream_id

    while turn() or decoder.batcher.wait_s is not None:
        decoder.clock.now_s += 0.01
    for stream_id in heard.keys() - answers.keys():
        num_left = made[stream_id] - len(heard[stream_id]) // FRAME_SAMPLES
        most_left = max(chunk_ramp) - 1 if stream_id in batch else 0
        assert num_left <= most_left, "what waits is decoded without another record"
    for stream_id in range(1, NUM_STREAMS + 1):
        stop(stream_id, FinishReason.MAX_FRAMES)
    while turn():
        pass
    assert answers == reasons
    assert {first.stream_id for first in decoder.first_told} == set(heard)
    assert decoder.batcher.num_streams == 0
    for stream_id, reason in reasons.items():
        num_frames = made.get(stream_id, 0)
        codes = np.array([codes_of(stream_id, index) for index in range(num_frames)], np.int16).reshape(-1, 16)
        wanted = expected_pcm(codes, references[stream_id]).tolist()
        pcm = heard.get(stream_id, [])
        assert pcm == (wanted if reason is not FinishReason.CANCELLED else wanted[: len(pcm)])
        num_before = 0
        for size in chunks.get(stream_id, []):
            most = max(chunk_ramp) if stream_id in batch else GROWTH * num_before or chunk_ramp[0]
            assert size <= min(max(chunk_ramp), most)
            num_before += size
