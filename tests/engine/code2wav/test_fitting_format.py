"""The talker's own speech decides which number format the codec works in. On the CPU float16 is plain operations."""

from pathlib import Path

import numpy as np
import pytest

from sonorant.engine.checkpoint.config import Checkpoint, load_checkpoint
from sonorant.engine.code2wav.run import runner as runner_module
from sonorant.engine.code2wav.run.runner import Code2WavRunner, runner_in_fitting_format
from sonorant.engine.config import EngineConfig
from sonorant.engine.ipc.messages import SAMPLE_STREAM, FrameBatch
from sonorant.engine.talker.run.runner import TalkerRunner
from sonorant.engine.talker.run.speech_sample import NUM_FRAMES, speech_sample
from tests.tiny_checkpoint import write_tiny_checkpoint


@pytest.fixture(scope="module", params=["custom_voice", "base"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder: Path = write_tiny_checkpoint(tmp_path_factory.mktemp("tiny"), request.param)
    return load_checkpoint(folder)


@pytest.fixture(scope="module")
def config(checkpoint: Checkpoint) -> EngineConfig:
    return EngineConfig.of(
        checkpoint.folder, num_slots=2, max_context=128, talker_device="cpu", code2wav_device="cpu", cpu_threads=1
    )


@pytest.fixture(scope="module")
def sample(checkpoint: Checkpoint, config: EngineConfig) -> FrameBatch:
    return speech_sample(TalkerRunner(checkpoint, config).step, checkpoint, config)


def test_the_sample_is_speech_of_nobody(checkpoint: Checkpoint, sample: FrameBatch) -> None:
    assert sample.codes.shape == (NUM_FRAMES, checkpoint.talker.num_codebooks)
    assert (sample.stream_ids == SAMPLE_STREAM).all() and sample.frame_indices.tolist() == list(range(NUM_FRAMES))
    assert sample.codes.min() >= 0 and sample.codes.max() < checkpoint.code_predictor.vocab_size
    assert len(np.unique(sample.codes, axis=0)) > 1


def test_a_format_that_agrees_stays(checkpoint: Checkpoint, config: EngineConfig, sample: FrameBatch) -> None:
    likely = Code2WavRunner(checkpoint, config.but(code2wav_dtype="float16"))
    chosen, why = runner_in_fitting_format(likely, checkpoint, config, sample.codes)
    assert chosen is likely and why.startswith("float16 agrees with float32 to ")


def test_one_that_does_not_goes(
    checkpoint: Checkpoint, config: EngineConfig, sample: FrameBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sonorant.engine.code2wav.schedule.formats.MIN_AGREEMENT_DB", 300.0)
    # The CPU has no tf32; float32 stands in for it, and 300 dB are too much for 16 bits of PCM.
    monkeypatch.setattr(
        runner_module, "Code2WavRunner", lambda c, made: Code2WavRunner(c, made.but(code2wav_dtype="float32"))
    )
    likely = Code2WavRunner(checkpoint, config.but(code2wav_dtype="float16"))
    chosen, why = runner_in_fitting_format(likely, checkpoint, config, sample.codes)
    assert chosen is not likely and chosen.format == "float32"
    assert why.count("only") == 2
