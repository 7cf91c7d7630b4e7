from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.code2wav.run import runner as runner_module
from sonorant.engine.code2wav.run.runner import Code2WavRunner
from sonorant.engine.config import EngineConfig
from sonorant.engine.errors import CheckpointError, EngineError
from sonorant.engine.types import Int16Array
from tests.tiny_checkpoint import write_tiny_checkpoint

NUM_SLOTS = 4


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> EngineConfig:
    return EngineConfig.of(model=write_tiny_checkpoint(tmp_path_factory.mktemp("checkpoint")), num_slots=NUM_SLOTS)


def make_runner(config: EngineConfig, *, float_output: bool = False) -> Code2WavRunner:
    return Code2WavRunner(load_checkpoint(config.model), config, float_output=float_output)


def random_codes(num_rows: int, num_frames: int) -> Int16Array:
    return np.random.default_rng(num_frames).integers(0, 64, (num_rows, num_frames, 4)).astype(np.int16)


def test_pcm_is_the_rounded_float_audio(config: EngineConfig) -> None:
    codes = random_codes(2, 7)
    floats = make_runner(config, float_output=True).decode([2, 0], codes)
    pcm = make_runner(config).decode([2, 0], codes)
    assert (floats.dtype, pcm.dtype) == (np.float32, np.int16)
    assert np.abs(floats).max() <= 1.0
    np.testing.assert_array_equal(pcm, np.rint(floats * np.float32(32767)).astype(np.int16))


def test_a_new_runner_and_a_reset_slot_start_from_silence(config: EngineConfig) -> None:
    runner = make_runner(config, float_output=True)
    codes = random_codes(1, 9)
    first = runner.decode([0], codes)
    assert not np.allclose(runner.decode([0], codes), first, atol=1e-3)
    runner.reset(0)
    np.testing.assert_allclose(runner.decode([0], codes), first, rtol=0, atol=1e-5)
    np.testing.assert_allclose(runner.decode([NUM_SLOTS - 1], codes), first, rtol=0, atol=1e-5)


def test_a_copy_goes_on_where_the_other_was(config: EngineConfig) -> None:
    runner = make_runner(config, float_output=True)
    codes, kept = random_codes(1, 30), NUM_SLOTS + config.code2wav.kept_references - 1
    runner.decode([1], codes[:, :20])
    runner.copy(1, kept)
    expected = runner.decode([1], codes[:, 20:])
    for slot in (3, 0):
        runner.decode([slot], codes[:, :5])
        runner.copy(kept, slot)
        np.testing.assert_allclose(runner.decode([slot], codes[:, 20:]), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("num_frames", [1, 3, 5, 11])
def test_large_calls_are_done_in_several_passes(
    config: EngineConfig, num_frames: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = random_codes(3, num_frames)
    expected = make_runner(config, float_output=True).decode([3, 1, 0], codes)
    monkeypatch.setattr(runner_module, "max_pass_frames", lambda *_: 4)
    samples = make_runner(config, float_output=True).decode([3, 1, 0], codes)
    assert samples.shape == (3, num_frames * 1920)
    np.testing.assert_allclose(samples, expected, rtol=0, atol=1e-5)


def test_returned_samples_are_the_callers_own(config: EngineConfig) -> None:
    runner = make_runner(config)
    samples = runner.decode([0], random_codes(1, 2))
    kept = samples.copy()
    runner.decode([0], random_codes(1, 2))
    np.testing.assert_array_equal(samples, kept)


def test_float16_is_near_float32(config: EngineConfig) -> None:
    codes = random_codes(1, 12)
    exact = make_runner(config, float_output=True).decode([0], codes)
    rounded = make_runner(config.but(code2wav_dtype="float16"), float_output=True).decode([0], codes)
    assert rounded.dtype == np.float32
    assert np.sqrt(np.mean((rounded - exact) ** 2)) < 0.01 * np.sqrt(np.mean(exact**2))


def test_dummy_weights_are_seeded_and_finite(config: EngineConfig) -> None:
    codes = random_codes(1, 3)
    first, again, other = (
        make_runner(replace(config, load_format="dummy", seed=seed), float_output=True).decode([0], codes)
        for seed in (1, 1, 2)
    )
    assert np.isfinite(first).all()
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_missing_codec_file_is_named(config: EngineConfig, tmp_path: Path) -> None:
    folder = write_tiny_checkpoint(tmp_path / "broken")
    (folder / "speech_tokenizer" / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"speech_tokenizer/model\.safetensors"):
        make_runner(replace(config, model=folder))


@pytest.mark.parametrize(("num_rows", "num_frames"), [(1, 1), (3, 7), (4, 12), (4, 13)])
def test_passes_of_a_few_shapes_give_the_same_audio(config: EngineConfig, num_rows: int, num_frames: int) -> None:
    """As on CUDA: rows are filled up, frames are the sum of chunk sizes; a call may need several passes."""
    codes = random_codes(num_rows, num_frames)
    plain, shaped = make_runner(config, float_output=True), make_runner(config, float_output=True)
    shaped._main, shaped._urgent = shaped._lanes(config.but(enforce_eager=True, max_decode_batch=3))
    for slots in ([3, 1, 0, 2], [2, 0, 1, 3]):
        slots = slots[:num_rows]
        np.testing.assert_allclose(shaped.decode(slots, codes), plain.decode(slots, codes), rtol=0, atol=1e-5)


def test_tf32_is_refused_on_the_cpu(config: EngineConfig) -> None:
    with pytest.raises(EngineError, match="tf32 needs a CUDA device"):
        make_runner(config.but(code2wav_device="cpu", code2wav_dtype="tf32"))
