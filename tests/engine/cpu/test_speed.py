"""What a frame of a published checkpoint needs on the CPU, and how many streams that leaves."""

import pytest

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.checkpoint.folders import PRESETS_DIR
from sonorant.engine.cpu.library import library
from sonorant.engine.cpu.speed import FrameWork, Speed, measured_speed, rounded_work
from sonorant.engine.model.rounded import INT4, INT8, Rounding
from sonorant.engine.sizes import real_time_factor

FRAME_S = 0.08


def published() -> FrameWork:
    return rounded_work(load_checkpoint(PRESETS_DIR / "qwen3-tts-12hz-0.6b-customvoice"), INT8)


def test_a_frame_reads_the_talker_once_and_the_code_predictor_fifteen_times() -> None:
    """0.6B: 28 and 5 layers of 1,024 values, with 16 heads and 8 for keys and values."""
    layer = (2 * 16 + 2 * 8) * 128 * 1024 + 3 * 3072 * 1024
    talker, predictor = 28 * layer + 3072 * 1024, 5 * layer + 2048 * 1024
    work = published()
    assert work.talker_bytes == talker * 130 // 128  # a scale of 2 bytes for 128 weights
    assert (work.later_codebooks, work.predictor_bytes) == (15, predictor * 130 // 128)
    counted_by_torch = 2_480_297_984  # FlopCounterMode, with attention; it takes too long to be used here
    assert work.convolutions == pytest.approx(counted_by_torch, rel=0.001)


def test_the_scarcer_resource_decides_and_code2wav_needs_both() -> None:
    work = FrameWork(
        talker_bytes=100, predictor_bytes=10, later_codebooks=15, products=50, convolutions=60, code2wav_bytes=20
    )
    speed = Speed(talker_bytes=1_000, predictor_bytes=1_500, products=1_000, convolutions=3_000)
    assert work.step_s(speed, 1) == pytest.approx(0.2)
    assert work.step_s(speed, 8) == pytest.approx(0.4)
    assert work.codec_s(speed) == pytest.approx(0.04)


def test_eight_cores_that_read_60_gb_a_second_speak_in_half_the_time() -> None:
    """Each worker has four of them; a core multiplies what two cores of the README's machines were seen to."""
    work = published()
    speed = Speed(talker_bytes=60e9, predictor_bytes=60e9, products=4 * 24e9, convolutions=4 * 22e9)
    assert real_time_factor(work.steps_s(speed), work.codec_s(speed), FRAME_S, in_turns=False) < 0.5


@pytest.mark.skipif(library() is None, reason="installed without a C compiler")
@pytest.mark.parametrize("rounding", [INT8, INT4])
def test_a_measurement_says_something_possible(rounding: Rounding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sonorant.engine.cpu.speed.MEASURED_S", 0.01)
    speed = measured_speed(published(), rounding)
    assert 1e8 < min(speed.talker_bytes, speed.predictor_bytes) < 1e12
    assert 1e8 < min(speed.products, speed.convolutions) < 1e13
