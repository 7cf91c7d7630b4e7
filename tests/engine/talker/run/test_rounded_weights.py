"""With rounded weights, the C functions say what plain operations say with the same weights: in any company, with
any number of threads, and from the file that an earlier start kept."""

import asyncio
import dataclasses
import logging
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from sonorant.engine.checkpoint.config import Checkpoint, load_checkpoint
from sonorant.engine.checkpoint.fingerprint import fingerprint
from sonorant.engine.config import EngineConfig
from sonorant.engine.cpu import choice
from sonorant.engine.cpu.library import builds, chosen, library, load
from sonorant.engine.errors import EngineError
from sonorant.engine.model.alignment import AlignmentHead
from sonorant.engine.model.kept_weights import kept_path
from sonorant.engine.model.rounded import INT4, INT8, ROUNDINGS, SCALE, TILE, RoundedEmbedding, RoundedLinear, Rounding
from sonorant.engine.talker.run import runner as runner_module
from sonorant.engine.talker.run.compiled import CompiledSteps
from sonorant.engine.talker.run.runner import TalkerRunner
from sonorant.engine.talker.schedule.rows import BROKEN
from sonorant.engine.types import Int16Array
from tests.engine.one_engine import start_engine
from tests.engine.speech import assert_same_speech, say, speech
from tests.engine.talker.driver import Admission, Utterance, prepare, run, run_alone
from tests.tiny_checkpoint import write_tiny_checkpoint

pytestmark = pytest.mark.skipif(library() is None, reason="installed without a C compiler")

TEXTS = ("The quick brown fox jumps over the lazy dog.", "Hello world.", "Fine!", "Today is fine.")
NUM_FRAMES = 10
# The code predictor is narrower than the talker, as in 1.7B; in 0.6B it is not.
SIZES = {"hidden": 256, "intermediate": 256, "head_dim": 32, "predictor_hidden": 128, "text_hidden": 128}


@pytest.fixture(scope="module", autouse=True)
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of kept weights."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("XDG_CACHE_HOME", str(folder))
        patch.setitem(sys.modules, "torch._dynamo", None)  # torch's compiler: its import takes seconds and 150 MB
        yield folder / "sonorant"  # type: ignore[misc]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return load_checkpoint(write_tiny_checkpoint(tmp_path_factory.mktemp("tiny"), **SIZES))


@pytest.fixture(scope="module")
def runner(checkpoint: Checkpoint) -> TalkerRunner:
    made = TalkerRunner(checkpoint, config(checkpoint))
    assert isinstance(made._steps, CompiledSteps)
    return made


def config(checkpoint: Checkpoint, **settings: object) -> EngineConfig:
    of_all = {"num_slots": 9, "max_context": 256, "num_pages": 9 * 8, "talker_weights": "int8"}
    return EngineConfig.of(checkpoint.folder, talker_device="cpu", code2wav_device="cpu", **of_all | settings)


def utterance(checkpoint: Checkpoint, number: int) -> Utterance:
    sampling = dataclasses.replace(checkpoint.default_sampling, ignore_eos=True, seed=number)
    if number % 2 == 0:
        sampling = dataclasses.replace(sampling, do_sample=False, subtalker_do_sample=False)
    return prepare(checkpoint, TEXTS[number % len(TEXTS)], sampling, NUM_FRAMES)


# A step is rounded itself. In four bits a number that is the opposite of the largest one is a step off.
@pytest.mark.parametrize(("rounding", "most_steps"), [(INT8, 0.5001), (INT4, 1.05)])
def test_a_weight_is_off_by_its_groups_step_at_most(rounding: Rounding, most_steps: float) -> None:
    size = rounding.group
    factors = torch.logspace(-3, 3, 2 * TILE)[:, None]
    weight = torch.randn(2 * TILE, 12 * size, generator=torch.Generator().manual_seed(0)) * factors
    weight[0, :size] = 0
    packed = rounding.pack(weight)
    assert packed.shape == (2, rounding.tile_bytes(12 * size))
    steps = weight.unflatten(1, (-1, size)).abs().amax(2, keepdim=True) / (127 if rounding is INT8 else 8)
    steps = steps.to(SCALE).float()
    off = (rounding.unpack(packed, 12 * size) - weight).unflatten(1, (-1, size)).abs()
    assert (off <= steps * most_steps).all()
    assert (off > steps * 0.4).any(), "the bound is not far off"


def test_a_number_of_a_table_is_off_by_half_a_step_of_its_row_at_most() -> None:
    rows = torch.randn(40, 64, generator=torch.Generator().manual_seed(0)) * torch.logspace(-3, 3, 40)[:, None]
    rows[3] = 0
    table = RoundedEmbedding(40, 64)
    table.weight = torch.nn.Parameter(RoundedEmbedding.pack(rows), requires_grad=False)
    steps = rows.abs().amax(1, keepdim=True) / 127
    assert ((table(torch.arange(40)) - rows).abs() <= steps * 0.5001).all()


@pytest.mark.parametrize("weights", list(ROUNDINGS))
def test_every_build_says_what_plain_operations_say_with_the_same_weights(
    weights: str, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those for the instruction sets of this machine: the others are compiled and not run."""
    settings = config(checkpoint, talker_weights=weights)
    plain = TalkerRunner(checkpoint, settings, fused=False)
    assert any(isinstance(module, RoundedLinear) for module in plain._steps._talker.modules())  # type: ignore[union-attr]
    made = [utterance(checkpoint, number) for number in range(4)]
    said = [run_alone(plain, checkpoint, each) for each in made]
    for build, path in builds().items():
        monkeypatch.setattr(runner_module, "library", lambda path=path: load(path))
        runner = TalkerRunner(checkpoint, settings)
        ours = [run_alone(runner, checkpoint, each) for each in made]
        np.testing.assert_array_equal(ours, said, err_msg=build)


def test_so_it_does_from_bfloat16_and_where_the_code_predictor_is_as_wide_as_the_talker(tmp_path: Path) -> None:
    checkpoint = load_checkpoint(write_tiny_checkpoint(tmp_path, **SIZES | {"hidden": 128}))
    checkpoint = dataclasses.replace(checkpoint, dtype="bfloat16")  # tables stay in it, and their rows become float32
    made = utterance(checkpoint, 0)
    ours, plain = (TalkerRunner(checkpoint, config(checkpoint), fused=fused) for fused in (None, False))
    np.testing.assert_array_equal(run_alone(ours, checkpoint, made), run_alone(plain, checkpoint, made))


@pytest.mark.parametrize("weights", list(ROUNDINGS))
def test_a_stream_says_the_same_alone_and_in_any_company(weights: str, checkpoint: Checkpoint) -> None:
    """Up to nine rows at once: eight and one, and each smaller number on the way."""
    runner = TalkerRunner(checkpoint, config(checkpoint, talker_weights=weights))
    made = [utterance(checkpoint, number) for number in range(9)]
    alone = [run_alone(runner, checkpoint, each) for each in made]
    pages = [tuple(range(8 * i, 8 * i + 8)) for i in range(9)]
    company = [Admission(each, i, pages[i], first_step=i, chunk_rows=3) for i, each in enumerate(made)]
    np.testing.assert_array_equal(run(runner, checkpoint, company), alone)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_stream_without_usable_scores_is_told_and_spoils_no_other(value: float, tmp_path: Path) -> None:
    checkpoint = load_checkpoint(write_tiny_checkpoint(tmp_path, "base", **SIZES))
    runner = TalkerRunner(checkpoint, config(checkpoint))
    hidden = checkpoint.talker.stack.hidden_size
    rng = np.random.default_rng(0)
    sampling = dataclasses.replace(checkpoint.default_sampling, ignore_eos=True)
    sound = prepare(checkpoint, TEXTS[0], sampling, 4, x_vector=rng.standard_normal(hidden, np.float32))
    broken = dataclasses.replace(sound, x_vector=np.full(hidden, value, np.float32), num_frames=1)
    alone = run_alone(runner, checkpoint, sound)
    together = run(
        runner, checkpoint, [Admission(broken, 1, tuple(range(8, 16))), Admission(sound, 0, tuple(range(8)))]
    )
    assert together[0][0, 0] == BROKEN
    np.testing.assert_array_equal(together[1], alone)


@pytest.mark.slow
@pytest.mark.rare
def test_any_number_of_threads_says_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a checkpoint whose products are large enough to be shared. A copy of the library has its own threads."""
    sizes = SIZES | {"hidden": 512, "intermediate": 1024, "predictor_hidden": 512}
    checkpoint = load_checkpoint(write_tiny_checkpoint(tmp_path, **sizes))
    one = run_alone(TalkerRunner(checkpoint, config(checkpoint)), checkpoint, utterance(checkpoint, 0))
    copy = load(Path(shutil.copy(chosen() or "", tmp_path)))
    assert copy.use_threads(3) == 3
    monkeypatch.setattr(runner_module, "library", lambda: copy)
    three = run_alone(TalkerRunner(checkpoint, config(checkpoint)), checkpoint, utterance(checkpoint, 0))
    np.testing.assert_array_equal(three, one)


def codes(checkpoint: Checkpoint) -> Int16Array:
    return run_alone(TalkerRunner(checkpoint, config(checkpoint)), checkpoint, utterance(checkpoint, 1))


def test_a_later_start_maps_what_an_earlier_one_kept(
    runner: TalkerRunner, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run_alone(runner, checkpoint, utterance(checkpoint, 1))
    monkeypatch.setattr("sonorant.engine.talker.run.loading.load_module", None)  # the checkpoint is not read
    np.testing.assert_array_equal(codes(checkpoint), expected)


@pytest.mark.parametrize("head", [AlignmentHead(1, 2, 0.8), None])
def test_a_later_start_knows_the_alignment_head_that_an_earlier_one_found(
    checkpoint: Checkpoint, head: AlignmentHead | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_path(fingerprint(checkpoint, config(checkpoint)), INT8.conversion).with_suffix(".json").unlink(missing_ok=True)
    found = []
    monkeypatch.setattr(runner_module, "find_alignment_head", lambda *_: found.append(head) or head)
    for _ in range(2):
        assert TalkerRunner(checkpoint, config(checkpoint), finds_alignment=True).alignment_head == head
    assert len(found) == 1


@pytest.mark.parametrize("damage", ["a bit", "half", "no checksum"])
def test_damaged_weights_are_converted_again_and_told(
    runner: TalkerRunner, checkpoint: Checkpoint, kept: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    expected = run_alone(runner, checkpoint, utterance(checkpoint, 1))
    files = {path: path.read_bytes() for path in kept.iterdir()}
    for path, data in files.items():
        path.unlink()  # a runner of another test may have mapped it
        path.write_bytes(data)
        if path.suffix == ".safetensors" and damage == "a bit":
            path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        elif path.suffix == ".safetensors" and damage == "half":
            path.write_bytes(data[: len(data) // 2])
        elif path.suffix == ".sums" and damage == "no checksum":
            path.unlink()
    np.testing.assert_array_equal(codes(checkpoint), expected)
    told = [record.message for record in caplog.records if "damaged" in record.message]
    assert len(told) == (damage != "no checksum")
    name = kept_path(fingerprint(checkpoint, config(checkpoint)), INT8.conversion)
    assert name.read_bytes() == files[name], "it is kept again"


def test_a_folder_that_cannot_be_written_is_told_and_no_obstacle(
    runner: TalkerRunner,
    checkpoint: Checkpoint,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    np.testing.assert_array_equal(codes(checkpoint), run_alone(runner, checkpoint, utterance(checkpoint, 1)))
    assert [record.message for record in caplog.records if "not kept" in record.message]


def test_without_a_compiler_or_with_odd_sizes_torch_speaks_and_one_line_says_so(
    checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    odd = load_checkpoint(write_tiny_checkpoint(tmp_path))
    assert not choice.rounding_of(odd, config(odd))
    monkeypatch.setattr(choice, "library", lambda: None)
    assert not choice.rounding_of(checkpoint, config(checkpoint))
    assert [
        ("128" in r.message, "install gcc" in r.message) for r in caplog.records if r.levelno == logging.WARNING
    ] == [
        (True, False),
        (False, True),
    ]


def test_auto_is_int8_for_large_models_alone(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    auto = config(checkpoint, talker_weights="auto")
    assert choice.rounding_of(checkpoint, auto) is None
    monkeypatch.setattr("sonorant.engine.cpu.model.MOST_WEIGHTS", 1000)
    assert choice.rounding_of(checkpoint, auto) is INT8
    assert choice.rounding_of(checkpoint, auto.but(talker_weights="int4")) is INT4
    assert not choice.rounding_of(checkpoint, auto.but(dtype="float32"))


@pytest.mark.parametrize("weights", list(ROUNDINGS))
def test_on_a_gpu_it_is_refused(weights: str, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "find_device", lambda name: torch.device("cuda:0"))
    with pytest.raises(EngineError, match=f"{weights} is for the CPU"):
        choice.rounding_of(checkpoint, config(checkpoint, talker_weights=weights))


def test_real_workers_speak_with_it(checkpoint: Checkpoint) -> None:
    async def spoken() -> list[Int16Array]:
        engine = await start_engine(config(checkpoint, cpu_threads=2))
        try:
            params = speech(engine, max_frames=NUM_FRAMES, ignore_eos=True)
            heard = await asyncio.gather(*[say(engine, TEXTS[0], params) for _ in range(3)])
        finally:
            await engine.close()
        assert [each.num_frames for each in heard] == [NUM_FRAMES] * 3
        return [each.samples for each in heard]

    first, *others = asyncio.run(spoken())
    for other in others:
        assert_same_speech(first, other)
