"""What is decoded behind a stream before its first frame: a reference, and frames that were made before."""

import numpy as np
import pytest

from sonorant.engine.code2wav.schedule.context import DecoderContext
from sonorant.engine.ipc.messages import BeginStream, PcmBatch
from tests.engine.code2wav.hand_driven import Decoder, codes_of, end, frames
from tests.fakes import begin_stream, expected_pcm


def test_a_reference_is_decoded_first_and_not_heard() -> None:
    decoder = Decoder()
    reference = np.stack([codes_of(9, index) for index in range(70)])
    decoder.send(begin_stream(1, reference), frames(0, 1))
    heard = []
    for _ in range(4):
        heard += decoder.turn()
    assert decoder.runner.calls == [(1, 32), (1, 32), (1, 6), (1, 1)]
    (pcm,) = heard
    assert isinstance(pcm, PcmBatch) and pcm.first_frames.tolist() == [0]
    assert pcm.samples[0].tolist() == expected_pcm(codes_of(1, 0)[None], reference).tolist()


def test_a_reference_is_decoded_once_for_all_streams_in_its_voice() -> None:
    decoder = Decoder()
    reference = np.stack([codes_of(9, index) for index in range(70)])
    for stream_id in (1, 2, 3):
        before = len(decoder.runner.calls)
        decoder.send(begin_stream(stream_id, reference), frames(0, stream_id), end(stream_id))
        heard = [record.samples[0].tolist() for record in decoder.drain() if isinstance(record, PcmBatch)]
        assert heard == [expected_pcm(codes_of(stream_id, 0)[None], reference).tolist()]
        assert decoder.runner.calls[before:] == [(1, 32), (1, 32), (1, 6), (1, 1)][0 if stream_id == 1 else 3 :]


def test_references_unused_for_the_longest_are_forgotten() -> None:
    decoder = Decoder(kept_references=2)

    def num_calls(voice: int) -> int:
        before = len(decoder.runner.calls)
        decoder.send(begin_stream(before + 1, codes_of(voice, 0)[None]), frames(0, before + 1), end(before + 1))
        decoder.drain()
        return len(decoder.runner.calls) - before

    assert [num_calls(voice) for voice in (7, 8, 7, 9, 7, 8)] == [2, 2, 1, 2, 1, 2]


def test_a_reference_and_live_frames_are_calls_of_their_own() -> None:
    decoder = Decoder()
    decoder.send(begin_stream(1, codes_of(9, 0)[None]), begin_stream(2), frames(0, 1, 2))
    assert decoder.turn() == [] and not decoder.plan.is_heard
    (pcm,) = decoder.turn()
    assert decoder.runner.calls == [(1, 1), (2, 1)]
    assert isinstance(pcm, PcmBatch) and sorted(pcm.stream_ids.tolist()) == [1, 2]


@pytest.mark.parametrize("num_own", [0, 3, 7, 40])
@pytest.mark.parametrize("num_reference", [0, 3, 7, 40])
def test_of_what_is_behind_a_stream_the_last_frames_go_in_that_matter(num_reference: int, num_own: int) -> None:
    decoder = Decoder(context=DecoderContext(receptive_frames=7, chunk_frames=4))
    past = np.stack([codes_of(9, index) for index in range(num_reference + num_own + 1)])[:-1]
    decoder.send(BeginStream(1, 0.0, 0.0, past, num_own), frames(num_own, 1), end(1))
    skipped, remembered = [], 0
    for _ in range(4):
        heard = decoder.turn()
        skipped += [num_frames for _, num_frames in decoder.plan.new_slots]
        if heard:
            break
        remembered += decoder.plan.codes.shape[1]
    num_past = len(past)
    assert (skipped, remembered) == ([max(0, num_past - 7)], min(7, num_past))
    pcm, _ = heard
    assert isinstance(pcm, PcmBatch) and pcm.first_frames.tolist() == [num_own]


@pytest.mark.parametrize("num_past", [1, 5, 6, 9, 10, 11, 40])
def test_unheard_frames_are_attended_to_where_enough_come_behind(num_past: int) -> None:
    context = DecoderContext(receptive_frames=1000, chunk_frames=3, attended_frames=(4, 8), convolved_frames=2)
    decoder = Decoder(context=context)
    past = np.stack([codes_of(9, index) for index in range(num_past)])
    decoder.send(BeginStream(1, 0.0, 0.0, past, 0), frames(0, 1), end(1))
    sizes = []
    while not decoder.turn():
        sizes.append(decoder.plan.codes.shape[1])
    attended = [size for size in sizes if size > context.chunk_frames]
    decoded = sizes[len(attended) :]
    assert sum(sizes) == num_past and set(attended) <= {4, 8} and max(decoded) <= 3
    assert attended == sorted(attended, reverse=True)
    assert sum(decoded) >= min(num_past, 2) and sum(decoded) < 2 + 4
