"""Streams of every length through the loop, batcher and real decoder: the codes and the samples of a whole decode."""

from pathlib import Path

import numpy as np
import pytest

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.code2wav.decoding import turn
from sonorant.engine.code2wav.run.runner import Code2WavRunner
from sonorant.engine.code2wav.schedule.batcher import Batcher
from sonorant.engine.config import EngineConfig
from sonorant.engine.ipc.channel import QueueChannel
from sonorant.engine.ipc.messages import PcmBatch, PcmRecord
from sonorant.engine.types import PcmChunk
from tests.engine.code2wav.hand_driven import FRAME_S, end
from tests.fakes import begin_stream, frame_batch

LENGTHS = range(1, 41)
NUM_SLOTS = 6  # fewer than streams
TOLERANCE = 1e-5


@pytest.fixture(scope="module", params=["passes of any size", "passes of the sizes of chunks, as on CUDA"])
def runner(tiny: Path, request: pytest.FixtureRequest) -> Code2WavRunner:
    config = EngineConfig.of(model=tiny, num_slots=NUM_SLOTS, code2wav_device="cpu", max_decode_batch=4)
    runner = Code2WavRunner(load_checkpoint(tiny), config, float_output=True)
    if "CUDA" in request.param:
        runner._main, runner._urgent = runner._lanes(config.but(enforce_eager=True))
    return runner


def test_streams_of_every_length_sound_as_a_whole_decode(runner: Code2WavRunner, tiny: Path) -> None:
    codes = np.random.default_rng(0).integers(0, 64, (len(LENGTHS), LENGTHS[-1], 4)).astype(np.int16)
    expected = [runner.speak(row[:length]) for length, row in zip(LENGTHS, codes, strict=True)]
    config = EngineConfig.of(model=tiny, num_slots=NUM_SLOTS, max_decode_batch=4)
    batcher = Batcher(config, NUM_SLOTS, FRAME_S, runner.context, runner.pass_sizes)
    audio = QueueChannel[PcmRecord]()
    for length in LENGTHS:
        batcher.on_record(begin_stream(length))
    for index in range(LENGTHS[-1]):
        ids = [length for length in LENGTHS if index < length]
        batcher.on_record(frame_batch(ids, [index] * len(ids), codes[[length - 1 for length in ids], index]))
        if index + 1 in LENGTHS:
            batcher.on_record(end(index + 1))
        turn(audio, batcher, runner)
    while batcher.num_streams:
        turn(audio, batcher, runner)

    heard: dict[int, list[PcmChunk]] = {length: [] for length in LENGTHS}
    for record in audio.drain():
        if isinstance(record, PcmBatch):
            rows = zip(
                record.stream_ids.tolist(), record.first_frames.tolist(), record.samples, record.codes, strict=True
            )
            for length, first, samples, row_codes in rows:
                heard[length].append(PcmChunk(first, record.num_frames, samples, row_codes))
    for length, row, samples in zip(LENGTHS, codes, expected, strict=True):
        chunks = heard[length]
        assert [chunk.first_frame for chunk in chunks] == [0, *np.cumsum([chunk.num_frames for chunk in chunks])[:-1]]
        np.testing.assert_array_equal(np.concatenate([chunk.codes for chunk in chunks]), row[:length])
        np.testing.assert_allclose(np.concatenate([chunk.samples for chunk in chunks]), samples, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("num_frames", [1, 5, 11])
def test_padding_does_not_change_a_bit_of_what_is_before_it(runner: Code2WavRunner, num_frames: int) -> None:
    codes = np.random.default_rng(num_frames).integers(0, 64, (2, 12, 4)).astype(np.int16)
    codes[1, :num_frames] = codes[0, :num_frames]
    heard = []
    for row in codes:
        runner.reset(0)
        heard.append(runner.decode([0], row[None])[0, : num_frames * runner.frame_samples])
    np.testing.assert_array_equal(*heard)
