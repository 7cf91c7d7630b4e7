"""Code2Wav by compiled functions makes the same as by plain operations, in any chunks, beside any other streams, and
with any number of threads; with rounded weights, nearly the same."""

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.checkpoint.fingerprint import codec_fingerprint
from sonorant.engine.code2wav.run import loading
from sonorant.engine.code2wav.run import runner as runner_module
from sonorant.engine.code2wav.run.runner import Code2WavRunner
from sonorant.engine.code2wav.schedule.formats import agreement_db
from sonorant.engine.config import EngineConfig
from sonorant.engine.cpu.codec import CompiledCode2Wav
from sonorant.engine.cpu.codec_weights import WHOLES
from sonorant.engine.cpu.library import builds, chosen, library, load
from sonorant.engine.model.kept_weights import kept_path
from sonorant.engine.types import Int16Array
from tests.tiny_checkpoint import write_tiny_checkpoint

pytestmark = pytest.mark.skipif(library() is None, reason="installed without a C compiler")

# A window of 8 frames, so that 30 go beyond it. One convolution has more inputs than the C code takes at a time.
SIZES = {"decoder_dim": 256, "codec_dim": 256, "head_dim": 16, "heads": 4, "kv_heads": 2}
NUM_FRAMES = 30
LEAST_DB = 60  # of rounded weights against floats


@pytest.fixture(scope="module", params=[False, True], ids=["floats", "rounded"])
def rounded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[bool]:
    """Whether networks of this size have rounded weights."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param:
            patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
            patch.setattr("sonorant.engine.cpu.codec_weights.MOST_WEIGHTS", 0)
        yield request.param


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("checkpoint"), **SIZES)


@pytest.fixture(scope="module")
def runner(folder: Path, rounded: bool) -> Code2WavRunner:
    made = new_runner(folder)
    assert isinstance(made._decoder, CompiledCode2Wav) and made._decoder.is_rounded == rounded
    return made


@pytest.fixture(scope="module")
def codes() -> Int16Array:
    return np.random.default_rng(0).integers(0, 64, (3, NUM_FRAMES, 4)).astype(np.int16)


@pytest.fixture(scope="module")
def expected(folder: Path, codes: Int16Array) -> np.ndarray:
    """Samples [rows, samples] made by plain operations, all frames at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner_module, "fits", lambda decoder: False)
        return new_runner(folder).decode([0, 1, 2], codes)


@pytest.fixture(scope="module")
def whole(runner: Code2WavRunner, codes: Int16Array) -> np.ndarray:
    """The same by compiled functions."""
    return begun(runner).decode([0, 1, 2], codes)


def new_runner(folder: Path) -> Code2WavRunner:
    config = EngineConfig.of(folder, num_slots=3, code2wav_device="cpu", code2wav_dtype="float32")
    return Code2WavRunner(load_checkpoint(folder), config, float_output=True)


def begun(runner: Code2WavRunner) -> Code2WavRunner:
    for slot in range(3):
        runner.reset(slot)
    return runner


def assert_agree(samples: np.ndarray, expected: np.ndarray, rounded: bool, build: str = "") -> None:
    if rounded:
        assert agreement_db(samples, expected) > LEAST_DB, build
    else:
        np.testing.assert_allclose(samples, expected, rtol=0, atol=1e-5, err_msg=build)


@pytest.mark.slow
def test_every_build_makes_what_plain_operations_make(
    folder: Path, codes: Int16Array, expected: np.ndarray, rounded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those for the instruction sets of this machine: the others are compiled and not run."""
    assert np.abs(expected).max() > 0.01
    for build, path in builds().items():
        monkeypatch.setattr(runner_module, "library", lambda path=path: load(path))
        samples = begun(new_runner(folder)).decode([0, 1, 2], codes)
        assert_agree(samples, expected, rounded, build)


@pytest.mark.parametrize("chunks", [[1] * NUM_FRAMES, [1, 2, 4, 8, 12, 3], [29, 1]])
def test_chunks_and_company_change_no_bit(
    runner: Code2WavRunner, codes: Int16Array, whole: np.ndarray, chunks: list[int]
) -> None:
    begun(runner)
    made: list[list[np.ndarray]] = [[], [], []]
    first = 0
    for number, size in enumerate(chunks):
        # Three rows together, then one alone and two in another order.
        groups = ([2, 0, 1],) if number % 2 else ([1], [2, 0])
        for rows in groups:
            for row, samples in zip(rows, runner.decode(rows, codes[rows, first : first + size]), strict=True):
                made[row].append(samples)
        first += size
    np.testing.assert_array_equal([np.concatenate(parts) for parts in made], whole)


def test_threads_change_no_bit(folder: Path, whole: np.ndarray, codes: Int16Array, tmp_path: Path) -> None:
    """A copy of the library has its own threads, which end with the process as those of the library do."""
    copy = load(Path(shutil.copy(chosen() or "", tmp_path)))
    assert copy.use_threads(3) == 3
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner_module, "library", lambda: copy)
        shared = new_runner(folder)
    np.testing.assert_array_equal(shared.decode([0, 1, 2], codes), whole)


@pytest.mark.parametrize("parts", [[20], [1, 2, 17], [16, 3, 1]])
def test_what_nobody_hears_leaves_the_same_state(
    runner: Code2WavRunner, codes: Int16Array, whole: np.ndarray, parts: list[int]
) -> None:
    """Also if it comes in parts, of which some are shorter than what a layer's state reaches back."""
    begun(runner)
    first = 0
    for size in parts:
        runner.remember([1, 0], codes[:2, first : first + size])
        first += size
    rest = runner.decode([1, 0], codes[:2, 20:])
    np.testing.assert_array_equal(rest, whole[:2, 20 * runner.frame_samples :])


@pytest.mark.parametrize("code", [-1, 64])
def test_a_code_of_no_codebook_is_an_error_and_changes_nothing(
    runner: Code2WavRunner, codes: Int16Array, expected: np.ndarray, rounded: bool, code: int
) -> None:
    wrong = codes[:1, :2].copy()
    wrong[0, 1, 2] = code
    begun(runner)
    with pytest.raises(IndexError, match="not between 0 and 63"):
        runner.decode([0], wrong)
    assert_agree(runner.decode([0], codes[:1]), expected[:1], rounded)


def test_channels_that_fill_no_group_are_filled_up(tmp_path: Path, codes: Int16Array, rounded: bool) -> None:
    odd = write_tiny_checkpoint(tmp_path, **SIZES | {"decoder_dim": 176, "codec_dim": 140})
    compiled = new_runner(odd)
    assert isinstance(compiled._decoder, CompiledCode2Wav)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner_module, "fits", lambda decoder: False)
        expected = new_runner(odd).decode([0, 1, 2], codes)
    whole = compiled.decode([0, 1, 2], codes)
    assert_agree(whole, expected, rounded)
    begun(compiled)
    parts = [compiled.decode([1], codes[1:2, :9]), compiled.decode([1], codes[1:2, 9:])]
    np.testing.assert_array_equal(np.concatenate([each[0] for each in parts]), whole[1])


@pytest.mark.slow
def test_other_formats_and_sizes_are_left_to_plain_operations(folder: Path, tmp_path: Path) -> None:
    config = EngineConfig.of(folder, num_slots=1, code2wav_device="cpu", code2wav_dtype="float16")
    other = write_tiny_checkpoint(tmp_path)
    for each in (config, dataclasses.replace(config.but(code2wav_dtype="float32"), model=other)):
        assert not isinstance(Code2WavRunner(load_checkpoint(each.model), each)._decoder, CompiledCode2Wav)


# Of small networks only these are kept.
rounded_weights = pytest.mark.parametrize("rounded", [True], ids=["rounded"], indirect=True, scope="module")


@pytest.fixture
def kept(folder: Path, rounded: bool) -> Path:
    """The file of kept weights."""
    return kept_path(codec_fingerprint(load_checkpoint(folder), EngineConfig.of(folder)), WHOLES)


@rounded_weights
def test_a_later_start_maps_what_an_earlier_one_kept(
    folder: Path, codes: Int16Array, whole: np.ndarray, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "load_module", None)  # the checkpoint is not read
    np.testing.assert_array_equal(new_runner(folder).decode([0, 1, 2], codes), whole)


@rounded_weights
@pytest.mark.parametrize("damage", ["a bit", "half", "no checksum", "a folder of which nothing can be made"])
def test_what_was_kept_and_is_damaged_is_made_again_and_told(
    folder: Path,
    codes: Int16Array,
    whole: np.ndarray,
    kept: Path,
    tmp_path: Path,
    damage: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    # The runner has mapped the other one.
    file = Path(shutil.copytree(kept.parent, tmp_path / "sonorant")) / kept.name
    data = file.read_bytes()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    told = "damaged"
    match damage:
        case "a bit":
            file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        case "half":
            file.write_bytes(data[: len(data) // 2])
        case "no checksum":
            file.with_suffix(".sums").unlink()
            told = ""
        case _:
            monkeypatch.setenv("XDG_CACHE_HOME", str(file))
            told = "not kept"
    np.testing.assert_array_equal(new_runner(folder).decode([0, 1, 2], codes), whole)
    lines = [record.message for record in caplog.records if told and told in record.message]
    assert len(lines) == bool(told)
    assert file.read_bytes() == data, "it is kept again, or was left alone"
