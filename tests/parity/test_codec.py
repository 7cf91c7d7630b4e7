"""The codec and speaker encoders and whole utterances against the official package; see make_codec_goldens.py."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from sonorant.engine import offline
from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.code2wav.run.runner import Code2WavRunner
from sonorant.engine.config import EngineConfig
from sonorant.engine.encoder.recording import read_recording
from sonorant.engine.encoder.reference import ReferenceEncoder
from tests.parity.make_codec_goldens import (
    CASES,
    GOLDENS,
    MAX_FRAMES,
    RECORDINGS,
    SIZES,
    STRIDE,
    decoded_codes,
    write_recording,
)
from tests.tiny_checkpoint import write_tiny_checkpoint

WriteCheckpoint = Callable[[str, str], Path]


@pytest.fixture(scope="module")
def checkpoint_folder(tmp_path_factory: pytest.TempPathFactory) -> WriteCheckpoint:
    """Writes the checkpoint of a task and size, once."""
    folder = tmp_path_factory.mktemp("checkpoints")

    def write(task: str, sizes: str) -> Path:
        checkpoint = folder / f"{task}-{sizes}"
        return checkpoint if checkpoint.exists() else write_tiny_checkpoint(checkpoint, task, **SIZES[sizes])

    return write


@pytest.fixture(scope="module")
def codec_golden() -> Any:
    with np.load(GOLDENS / "codec.npz") as golden:
        yield golden


@pytest.mark.parametrize("sizes", SIZES)
def test_decoder_is_the_official_one(checkpoint_folder: WriteCheckpoint, codec_golden: Any, sizes: str) -> None:
    folder = checkpoint_folder("base", sizes)
    checkpoint = load_checkpoint(folder)
    runner = Code2WavRunner(checkpoint, EngineConfig.of(model=folder, num_slots=1), float_output=True)
    decoder = checkpoint.codec.decoder
    codes = decoded_codes(decoder.num_quantizers, decoder.codebook_size)
    samples = runner.decode([0], codes[None])
    assert samples.shape == (1, len(codes) * checkpoint.codec.frame_samples)
    np.testing.assert_allclose(samples[0, ::STRIDE], codec_golden[f"{sizes}.samples"], rtol=0, atol=1e-4)


@pytest.mark.parametrize("index", range(len(RECORDINGS)))
@pytest.mark.parametrize("sizes", SIZES)
def test_references_are_encoded_as_officially(
    checkpoint_folder: WriteCheckpoint, codec_golden: Any, tmp_path: Path, sizes: str, index: int
) -> None:
    folder = checkpoint_folder("base", sizes)
    encoder = ReferenceEncoder(load_checkpoint(folder), EngineConfig(model=folder))
    samples = read_recording(write_recording(tmp_path, index), encoder.sample_rate_hz).samples
    x_vector = encoder.x_vector(samples)
    assert x_vector.dtype == np.float32
    np.testing.assert_allclose(x_vector, codec_golden[f"{sizes}.{index}.x_vector"], rtol=0, atol=1e-4)
    codes = encoder.codes(samples)
    assert codes.dtype == np.int16
    np.testing.assert_array_equal(codes, codec_golden[f"{sizes}.{index}.codes"])


@pytest.mark.parametrize("index", range(len(CASES)))
def test_offline_speaks_as_the_official_package(
    checkpoint_folder: WriteCheckpoint, codec_golden: Any, tmp_path: Path, index: int
) -> None:
    case = CASES[index]
    arguments = [
        *("--model", str(checkpoint_folder(case["task"], case["sizes"])), "--text", case["text"]),
        *("--language", case["language"], "--greedy", "--max-frames", str(MAX_FRAMES)),
        *("--wav", str(tmp_path / "speech.wav"), "--wav-float", "--codes", str(tmp_path / "codes.npy")),
    ]
    if case["non_streaming"] is not None:
        arguments.append("--non-streaming-mode" if case["non_streaming"] else "--streaming-mode")
    for name in ("speaker", "instruct"):
        if case.get(name):
            arguments += [f"--{name}", case[name]]
    if "recording" in case:
        arguments += ["--reference", str(write_recording(tmp_path, case["recording"]))]
        arguments += ["--reference-text", case["reference_text"]] if case["reference_text"] else ["--x-vector-only"]
        arguments += ["--speaker-embedding-out", str(tmp_path / "x_vector.npy")]
    assert offline.main(arguments) == 0

    with np.load(GOLDENS / "offline.npz") as golden:
        np.testing.assert_array_equal(np.load(tmp_path / "codes.npy"), golden[f"{index}.codes"])
        samples, rate_hz = soundfile.read(tmp_path / "speech.wav", dtype="float32")
        assert rate_hz == 24000
        assert len(samples) == len(golden[f"{index}.codes"]) * 1920
        np.testing.assert_allclose(samples[::STRIDE], golden[f"{index}.samples"], rtol=0, atol=1e-3)
    if "recording" in case:
        expected = codec_golden[f"{case['sizes']}.{case['recording']}.x_vector"]
        np.testing.assert_allclose(np.load(tmp_path / "x_vector.npy"), expected, rtol=0, atol=1e-4)
