"""`python -m sonorant.engine.offline` as a user meets it: files, defaults, exit codes.

Parity with the official package is in tests/parity/test_codec.py."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from sonorant.engine import offline
from sonorant.engine.checkpoint.folders import BUILTIN_VOICE_DIR
from sonorant.engine.errors import InvalidSynthesis
from sonorant.engine.types import FinishReason
from tests.tiny_checkpoint import write_tiny_checkpoint

TEXT = "Hello world."
FRAMES = 8


@pytest.fixture(scope="module")
def custom_voice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("custom_voice"), "custom_voice")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("base"), "base")


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("recording") / "reference.wav"
    soundfile.write(file, 0.1 * np.random.default_rng(0).standard_normal(20000), 24000)
    return file


def test_the_files_hold_what_was_made(custom_voice: Path, tmp_path: Path) -> None:
    pcm, floats, codes = tmp_path / "pcm.wav", tmp_path / "floats.wav", tmp_path / "codes"
    common = ["--model", str(custom_voice), "--text", TEXT, "--max-frames", str(FRAMES)]
    assert offline.main([*common, "--wav", str(pcm), "--codes", str(codes)]) == 0
    assert offline.main([*common, "--wav", str(floats), "--wav-float"]) == 0
    made = np.load(codes)
    assert (made.shape, made.dtype) == ((FRAMES, 4), np.int16)
    assert (soundfile.info(pcm).subtype, soundfile.info(floats).subtype) == ("PCM_16", "FLOAT")
    samples, rate_hz = soundfile.read(floats, dtype="float32")
    assert (len(samples), rate_hz) == (FRAMES * 1920, 24000)
    rounded, _ = soundfile.read(pcm, dtype="int16")
    np.testing.assert_array_equal(rounded, np.rint(samples * 32767))


def test_the_builtin_voice_speaks_by_default(tmp_path: Path) -> None:
    wav = tmp_path / "speech.wav"
    assert offline.main(["--text", "Hello, how are you today?", "--wav", str(wav)]) == 0
    samples, rate_hz = soundfile.read(wav)
    assert 1.0 < len(samples) / rate_hz < 5.0
    assert np.abs(samples).max() > 0.05


def test_defaults_are_those_of_the_official_package(custom_voice: Path, base: Path, recording: Path) -> None:
    def codes(**given: object) -> list[list[int]]:
        return offline.synthesize(TEXT, max_frames=FRAMES, **given).codes.tolist()  # type: ignore[arg-type]

    implied = codes(model=custom_voice)
    assert implied == codes(model=custom_voice, speaker="vivian", language="auto", non_streaming_mode=True, seed=0)
    assert implied != codes(model=custom_voice, speaker="ryan")
    clone = {"model": base, "reference": recording, "reference_text": "hello"}
    assert codes(**clone) == codes(**clone, non_streaming_mode=False)
    assert codes(**clone) != codes(**clone, non_streaming_mode=True)


def test_the_seed_decides(custom_voice: Path) -> None:
    first, again, other = (
        offline.synthesize(TEXT, model=custom_voice, max_frames=FRAMES, seed=seed).codes.tolist() for seed in (7, 7, 8)
    )
    assert first == again != other


@pytest.mark.parametrize("max_frames", [1, 13, 40])
def test_n_frames_are_n_frames(custom_voice: Path, max_frames: int) -> None:
    heard: list[int] = []
    result = offline.synthesize(TEXT, model=custom_voice, max_frames=max_frames, greedy=True, on_frames=heard.append)
    assert result.end.reason is FinishReason.MAX_FRAMES
    assert len(result.codes) == result.end.num_frames == sum(heard) == max_frames
    assert result.samples.shape == (max_frames * 1920,)


def test_the_reference_is_never_heard(base: Path, recording: Path, tmp_path: Path) -> None:
    result = offline.synthesize(TEXT, model=base, reference=recording, reference_text="hello", max_frames=FRAMES)
    assert result.reference_codes is not None
    assert len(result.reference_codes) == 11
    assert result.samples.shape == (FRAMES * 1920,)
    embedding = tmp_path / "x_vector.npy"
    arguments = ["--model", str(base), "--text", TEXT, "--reference", str(recording), "--x-vector-only"]
    assert offline.main([*arguments, "--max-frames", "1", "--speaker-embedding-out", str(embedding)]) == 0
    np.testing.assert_array_equal(np.load(embedding), result.x_vector)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to write"),
        (["--wav", "missing/speech.wav"], "missing is not a folder"),
        (["--reference", "voice.wav"], "--reference-text"),
        (["--speaker-embedding-out", "x.npy"], "needs --reference"),
        (["--wav", "speech.wav", "--non-streaming-mode", "--streaming-mode"], "not allowed with"),
    ],
)
def test_wrong_arguments_end_with_status_2(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    outputs = {"--wav", "--codes", "--speaker-embedding-out"}
    complete = arguments if not arguments or outputs & set(arguments) else [*arguments, "--wav", "speech.wav"]
    with pytest.raises(SystemExit) as exit_info:
        offline.main(["--text", TEXT, *complete])
    assert exit_info.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--text", "  \n"], "the text is empty"),
        (["--text", TEXT, "--speaker", "vivien"], "did you mean 'vivian'"),
        (["--text", TEXT, "--language", "klingon"], "does not speak language 'klingon'"),
        (["--text", TEXT, "--max-frames", "0"], "max_frames"),
        (["--text", TEXT, "--seed", "-1"], "seed"),
        (["--text", TEXT, "--model", "nowhere"], "nowhere"),
        (["--text", TEXT, "--device", "abacus"], "abacus"),
        (["--text", TEXT, "--reference", "voice.wav", "--x-vector-only"], "cannot clone a voice"),
    ],
)
def test_bad_input_is_an_error_without_a_traceback(
    custom_voice: Path, arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wav = tmp_path / "speech.wav"
    assert offline.main(["--model", str(custom_voice), "--wav", str(wav), *arguments]) == 2
    stderr = capsys.readouterr().err
    assert "error: " in stderr
    assert message in stderr
    assert not wav.exists()


def test_base_needs_a_reference(base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--model", str(base), "--text", TEXT, "--wav", str(tmp_path / "speech.wav")]
    assert offline.main(arguments) == 2
    assert "reference" in capsys.readouterr().err
    missing = [*arguments, "--reference", str(tmp_path / "missing.wav"), "--reference-text", "hello"]
    assert offline.main(missing) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_the_function_raises_what_the_command_prints() -> None:
    with pytest.raises(InvalidSynthesis, match="text is empty"):
        offline.synthesize("", model=BUILTIN_VOICE_DIR)
