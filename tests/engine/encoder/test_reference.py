from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.config import EngineConfig
from sonorant.engine.encoder import reference as module
from sonorant.engine.encoder.reference import ReferenceEncoder
from sonorant.engine.errors import InvalidSynthesis, UnsupportedTask
from sonorant.engine.types import Float32Array
from tests.tiny_checkpoint import write_tiny_checkpoint


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("checkpoint"), "base")


@pytest.fixture(scope="module")
def encoder(folder: Path) -> ReferenceEncoder:
    return ReferenceEncoder(load_checkpoint(folder), EngineConfig(model=folder))


def noise(num_samples: int) -> Float32Array:
    return (0.1 * np.random.default_rng(0).standard_normal(num_samples)).astype(np.float32)


@pytest.mark.parametrize("num_samples", [1, 1919, 1920, 1921, 24000])
def test_an_incomplete_frame_counts(encoder: ReferenceEncoder, num_samples: int) -> None:
    codes = encoder.codes(noise(num_samples))
    assert codes.shape == (-(-num_samples // 1920), 4)
    assert codes.dtype == np.int16
    assert codes.min() >= 0
    assert codes.max() < 64


def test_the_encoder_hears_nothing_of_the_future(encoder: ReferenceEncoder) -> None:
    samples = noise(20 * 1920)
    np.testing.assert_array_equal(encoder.codes(samples[: 8 * 1920]), encoder.codes(samples)[:8])


def test_x_vector_has_the_size_of_the_talker(encoder: ReferenceEncoder) -> None:
    x_vector = encoder.x_vector(noise(24000))
    assert (x_vector.shape, x_vector.dtype) == ((32,), np.float32)


@pytest.mark.parametrize("num_samples", [0, 1, 1279])
def test_a_recording_too_short_for_a_speaker_is_refused(encoder: ReferenceEncoder, num_samples: int) -> None:
    with pytest.raises(InvalidSynthesis, match=r"needs at least 0\.053 s"):
        encoder.x_vector(noise(num_samples))


def test_the_shortest_recording_is_taken(encoder: ReferenceEncoder) -> None:
    assert np.isfinite(encoder.x_vector(noise(1280))).all()


def test_only_base_checkpoints_clone(tmp_path: Path) -> None:
    folder = write_tiny_checkpoint(tmp_path, "custom_voice")
    with pytest.raises(UnsupportedTask, match="cannot clone"):
        ReferenceEncoder(load_checkpoint(folder), EngineConfig(model=folder))


def test_dummy_weights_and_bfloat16_work(folder: Path) -> None:
    config = replace(EngineConfig(model=folder), load_format="dummy", dtype="bfloat16")
    encoder = ReferenceEncoder(load_checkpoint(folder), config)
    assert np.isfinite(encoder.x_vector(noise(24000))).all()
    assert len(np.unique(encoder.codes(noise(24000)))) > 1


@pytest.mark.parametrize("num_samples", [1280, 1921, 24000, 2 * 1920 + 1280, 48_000, 61_440, 61_439])
def test_what_fills_a_recording_up_changes_nothing(
    folder: Path, encoder: ReferenceEncoder, num_samples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, where there are graphs of a few lengths; the last two have the longest, and one sample less."""
    monkeypatch.setattr(module, "library", lambda: None)  # compiled functions need no lengths
    filled = ReferenceEncoder(load_checkpoint(folder), EngineConfig(model=folder))
    filled.prepare(seconds=(1.6, 2.56))
    for earlier in (noise(61_440), noise(num_samples)):  # nothing stays of the one before
        filled.x_vector(earlier), filled.codes(earlier)
    samples = noise(num_samples)
    np.testing.assert_array_equal(filled.codes(samples), encoder.codes(samples))
    np.testing.assert_allclose(filled.x_vector(samples), encoder.x_vector(samples), rtol=0, atol=1e-5)


def test_one_longer_than_all_lengths_is_encoded_as_it_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "library", lambda: None)
    filled, plain = (ReferenceEncoder(load_checkpoint(folder), EngineConfig(model=folder)) for _ in range(2))
    filled.prepare(seconds=(1,))
    np.testing.assert_array_equal(filled.codes(noise(30_000)), plain.codes(noise(30_000)))
    np.testing.assert_array_equal(filled.x_vector(noise(30_000)), plain.x_vector(noise(30_000)))
