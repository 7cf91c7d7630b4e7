"""What a frame of a published checkpoint needs on the CPU."""

import pytest

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.checkpoint.folders import PRESETS_DIR
from sonorant.engine.cpu.work import FrameWork, rounded_work
from sonorant.engine.model.rounded import INT8
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


def test_eight_cores_that_read_60_gb_a_second_speak_in_half_the_time() -> None:
    """Each worker has four of them. On a core of an AMD EPYC with AVX2 were seen: 39 G multiplications in a second, and
    8 ms of a frame in which one thread computes and the others wait."""
    work = published()
    step_s, codec_s = 0.008 + work.read_bytes / 60e9, work.convolutions / (4 * 39e9)
    assert real_time_factor({1: step_s}, codec_s, FRAME_S, in_turns=False) < 0.5
