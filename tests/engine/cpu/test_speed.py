"""What a frame of a published checkpoint needs on the CPU, and how many streams that leaves."""

import pytest

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.checkpoint.folders import PRESETS_DIR
from sonorant.engine.cpu.speed import FrameWork, Speed, measured_speed, rounded_work
from sonorant.engine.model.rounded import INT8

FRAME_S = 0.08


def test_a_frame_reads_the_talker_once_and_the_code_predictor_fifteen_times() -> None:
    """0.6B: 28 and 5 layers of 1,024 values, with 16 heads and 8 for keys and values."""
    layer = (2 * 16 + 2 * 8) * 128 * 1024 + 3 * 3072 * 1024
    talker, predictor, heads = 28 * layer + 3072 * 1024, 5 * layer, 15 * 2048 * 1024
    num_weights = talker + 15 * predictor + heads
    work = rounded_work(load_checkpoint(PRESETS_DIR / "qwen3-tts-12hz-0.6b-customvoice"), INT8)
    assert work.talker_bytes == num_weights * 132 // 128  # a scale of 4 bytes for 128 weights
    counted_by_torch = 2_480_297_984  # FlopCounterMode, with attention; it takes too long to be used here
    assert work.code2wav_multiplications == pytest.approx(counted_by_torch, rel=0.001)


def test_the_slower_worker_and_the_scarcer_resource_decide() -> None:
    work = FrameWork(talker_bytes=1600, talker_multiplications=1600, code2wav_multiplications=2400)
    reads_slowly = Speed(bytes_read=10_000, multiplications=1e9)
    assert work.real_time_factor(reads_slowly, 1, FRAME_S) == pytest.approx(2)
    assert work.listeners(reads_slowly, FRAME_S) == 0
    multiplies_slowly = Speed(bytes_read=1e9, multiplications=60_000)
    assert work.real_time_factor(multiplies_slowly, 1, FRAME_S) == pytest.approx(0.5)
    assert work.listeners(multiplies_slowly, FRAME_S) == 2


def test_a_measurement_says_something_possible() -> None:
    speed = measured_speed(1)
    assert 1e8 < speed.bytes_read < 1e12
    assert 1e8 < speed.multiplications < 1e13
