import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from sonorant.engine.checkpoint.config import Checkpoint, load_checkpoint
from sonorant.engine.config import EngineConfig
from sonorant.engine.cpu.library import builds, library, load
from sonorant.engine.cpu.model import FORMATS, fits
from sonorant.engine.talker.run import runner as runner_module
from sonorant.engine.talker.run.compiled import CompiledSteps
from sonorant.engine.talker.run.runner import TalkerRunner
from sonorant.engine.talker.schedule.rows import BROKEN
from sonorant.engine.types import SamplingParams
from tests.engine.talker.driver import Admission, Utterance, prepare, run, run_alone
from tests.tiny_checkpoint import write_tiny_checkpoint

NUM_SLOTS = 9
PAGES_PER_SLOT = 8
NUM_FRAMES = 20
TEXTS = (
    "Hello world.",
    "The quick brown fox jumps over the lazy dog and speaks slowly.",
    "Fine!",
    "Today is fine, and the world speaks with joy.",
)


# One that compiled functions are for, and one that is left to plain operations.
SIZES = {"compiled": {"head_dim": 16, "predictor_hidden": 32}, "plain": {}}
WHOLE_PAIRS = SIZES["compiled"] | {"intermediate": 64, "text_hidden": 32}  # rows that may be bfloat16, see products.h


@pytest.fixture(scope="module", params=SIZES)
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    if request.param == "compiled" and library() is None:
        pytest.skip("installed without a C compiler")
    folder = write_tiny_checkpoint(tmp_path_factory.mktemp("tiny"), "base", **SIZES[request.param])
    return load_checkpoint(folder)


@pytest.fixture(scope="module")
def runner(checkpoint: Checkpoint) -> TalkerRunner:
    return TalkerRunner(checkpoint, config_for(checkpoint))


@pytest.fixture(scope="module")
def alone(runner: TalkerRunner, checkpoint: Checkpoint) -> list[np.ndarray]:
    """What each of `utterances` says when nobody else speaks."""
    return [run_alone(runner, checkpoint, u) for u in utterances(checkpoint)]


def config_for(checkpoint: Checkpoint) -> EngineConfig:
    return EngineConfig.of(
        checkpoint.folder,
        talker_device="cpu",
        num_slots=NUM_SLOTS,
        num_pages=NUM_SLOTS * PAGES_PER_SLOT,
        max_context=PAGES_PER_SLOT * 16,
    )


def is_compiled(checkpoint: Checkpoint) -> bool:
    return fits(checkpoint, torch.float32)


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def greedy(checkpoint: Checkpoint, **changes: Any) -> SamplingParams:
    return dataclasses.replace(checkpoint.default_sampling, do_sample=False, subtalker_do_sample=False, **changes)


def utterances(checkpoint: Checkpoint) -> list[Utterance]:
    """Nine of all kinds: greedy and sampled, long and short prompts, with and without a reference."""
    rng = np.random.default_rng(0)
    hidden, books = checkpoint.talker.stack.hidden_size, checkpoint.talker.num_codebooks
    made = []
    for i in range(NUM_SLOTS):
        sampling = greedy(checkpoint)
        if i % 2:
            sampling = dataclasses.replace(checkpoint.default_sampling, seed=i, top_p=0.8 if i % 3 else 1.0, top_k=i)
        params: dict[str, Any] = {"x_vector": rng.standard_normal(hidden, np.float32), "language": "english"}
        if i % 3 == 0:
            params["reference_codes"] = rng.integers(0, 64, (10 + 4 * i, books), np.int16)
            params["reference_text"] = TEXTS[2]
        params["non_streaming_mode"] = i % 4 == 3
        made.append(prepare(checkpoint, TEXTS[i % len(TEXTS)], sampling, NUM_FRAMES - i, **params))
    return made


def pages_of(slot: int) -> tuple[int, ...]:
    return tuple(range(slot * PAGES_PER_SLOT, (slot + 1) * PAGES_PER_SLOT))


@pytest.mark.parametrize("checkpoint", ["compiled"], indirect=True)
@pytest.mark.parametrize("weights", ["float32", "bfloat16"])
def test_every_build_says_what_plain_operations_say(
    weights: str, checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those for the instruction sets of this machine, with matrices whose numbers need 32 bits, and with others."""
    if weights == "bfloat16":
        checkpoint = load_checkpoint(write_tiny_checkpoint(tmp_path, "base", **WHOLE_PAIRS))
        rounded = {name: each.bfloat16() for name, each in load_file(tmp_path / "model.safetensors").items()}
        save_file(rounded, tmp_path / "model.safetensors")
    plain = TalkerRunner(checkpoint, config_for(checkpoint), fused=False)
    said = [run_alone(plain, checkpoint, each) for each in utterances(checkpoint)]
    for build, path in builds().items():
        monkeypatch.setattr(runner_module, "library", lambda path=path: load(path))
        runner = TalkerRunner(checkpoint, config_for(checkpoint))
        assert isinstance(runner._steps, CompiledSteps) and runner._steps._stack.format == FORMATS[weights]
        for utterance, codes in zip(utterances(checkpoint), said, strict=True):
            np.testing.assert_array_equal(run_alone(runner, checkpoint, utterance), codes, err_msg=build)


def test_a_stream_says_the_same_alone_and_in_any_company(
    runner: TalkerRunner, checkpoint: Checkpoint, alone: list[np.ndarray]
) -> None:
    made = utterances(checkpoint)
    assert len({codes.tobytes() for codes in alone}) == len(alone)
    together = run(runner, checkpoint, [Admission(u, i, pages_of(i)) for i, u in enumerate(made)])
    staggered = run(
        runner,
        checkpoint,
        [Admission(u, NUM_SLOTS - 1 - i, pages_of(i), first_step=(i * 5) % 7) for i, u in enumerate(made)],
        decodes_reversed=True,
    )
    for one, other, third in zip(alone, together, staggered, strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(one, third)


@pytest.mark.usefixtures("two_threads")
def test_so_it_does_with_two_threads(runner: TalkerRunner, checkpoint: Checkpoint) -> None:
    made = [dataclasses.replace(u, num_frames=3) for u in utterances(checkpoint)[:5]]
    together = run(runner, checkpoint, [Admission(u, i, pages_of(i)) for i, u in enumerate(made)])
    for utterance, codes in zip(made, together, strict=True):
        np.testing.assert_array_equal(run_alone(runner, checkpoint, utterance), codes)


@pytest.mark.parametrize("chunk_rows", [1, 3, 16, 17])
def test_a_prompt_may_go_in_by_pieces(
    runner: TalkerRunner, checkpoint: Checkpoint, alone: list[np.ndarray], chunk_rows: int
) -> None:
    long = [(u, codes) for u, codes in zip(utterances(checkpoint), alone, strict=True) if u.plan.num_rows > 20]
    admissions = [Admission(u, i, pages_of(i), chunk_rows=chunk_rows) for i, (u, _) in enumerate(long)]
    for (_, one), other in zip(long, run(runner, checkpoint, admissions), strict=True):
        np.testing.assert_array_equal(one, other)


def test_pages_need_not_be_consecutive(runner: TalkerRunner, checkpoint: Checkpoint, alone: list[np.ndarray]) -> None:
    made = zip(utterances(checkpoint), alone, strict=True)
    utterance, expected = max(made, key=lambda pair: pair[0].plan.num_rows)
    scattered = tuple(np.random.default_rng(1).permutation(runner.num_pages)[:PAGES_PER_SLOT].tolist())
    (codes,) = run(runner, checkpoint, [Admission(utterance, 3, scattered)])
    np.testing.assert_array_equal(codes, expected)


def test_pages_may_be_given_later(runner: TalkerRunner, checkpoint: Checkpoint, alone: list[np.ndarray]) -> None:
    made = utterances(checkpoint)
    scattered = np.random.default_rng(1).permutation(NUM_SLOTS * PAGES_PER_SLOT).reshape(NUM_SLOTS, -1).tolist()
    for pages in (map(pages_of, range(NUM_SLOTS)), map(tuple, scattered)):
        growing = [Admission(u, i, p, grows=True) for i, (u, p) in enumerate(zip(made, pages, strict=True))]
        for expected, codes in zip(alone, run(runner, checkpoint, growing), strict=True):
            np.testing.assert_array_equal(codes, expected)
        assert sum(a.num_pages for a in growing) > sum(-(-a.utterance.plan.num_rows // 16) for a in growing)


def test_the_seed_decides(runner: TalkerRunner, checkpoint: Checkpoint) -> None:
    made = [
        prepare(checkpoint, TEXTS[0], dataclasses.replace(checkpoint.default_sampling, seed=seed), 12)
        for seed in (7, 7, 8)
    ]
    first, again, other = run(runner, checkpoint, [Admission(u, i, pages_of(i)) for i, u in enumerate(made)])
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_only_what_may_be_sampled_is(runner: TalkerRunner, checkpoint: Checkpoint) -> None:
    """At a temperature that makes everything equally likely, and with the end token forbidden."""
    wild = dataclasses.replace(checkpoint.default_sampling, temperature=1e6, top_k=0, ignore_eos=True)
    codes = run_alone(runner, checkpoint, prepare(checkpoint, TEXTS[0], wild, 80))
    assert codes.dtype == np.int16
    assert codes.min() >= 0
    assert codes.max() < checkpoint.code_predictor.vocab_size
    assert len(np.unique(codes[:, 0])) > 30


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_stream_without_usable_scores_is_told_and_spoils_no_other(
    runner: TalkerRunner, checkpoint: Checkpoint, alone: list[np.ndarray], value: float
) -> None:
    """Neither those beside it nor those that get its pages after it."""
    made, expected = utterances(checkpoint)[:4], alone[:4]
    hidden = checkpoint.talker.stack.hidden_size
    broken = dataclasses.replace(made[3], x_vector=np.full(hidden, value, np.float32), num_frames=2)
    together = run(runner, checkpoint, [Admission(u, i, pages_of(i)) for i, u in enumerate([*made[:3], broken])])
    assert together[3][0, 0] == BROKEN
    for codes, whole in zip(together[:3], expected, strict=False):
        np.testing.assert_array_equal(codes, whole)
    for utterance, whole in zip(made, expected, strict=True):
        (codes,) = run(runner, checkpoint, [Admission(utterance, 3, pages_of(3), chunk_rows=5)])
        np.testing.assert_array_equal(codes, whole)


def test_the_end_token_comes_when_it_may(runner: TalkerRunner, checkpoint: Checkpoint) -> None:
    wild = dataclasses.replace(checkpoint.default_sampling, temperature=1e6, top_k=0, min_frames=5)
    made = [prepare(checkpoint, TEXTS[0], dataclasses.replace(wild, seed=seed), 30) for seed in range(9)]
    first_codes = [c[:, 0] for c in run(runner, checkpoint, [Admission(u, i, pages_of(i)) for i, u in enumerate(made)])]
    ends = [
        int(np.argmax(c == checkpoint.talker.codec_eos_id)) for c in first_codes if checkpoint.talker.codec_eos_id in c
    ]
    assert ends
    assert min(ends) >= 5


def test_passes_are_counted_with_their_padding(runner: TalkerRunner, checkpoint: Checkpoint) -> None:
    utterance = prepare(checkpoint, TEXTS[0], greedy(checkpoint), 2, language="english")
    before = dataclasses.astuple(runner.passes)
    run_alone(runner, checkpoint, utterance)
    num_rows = utterance.plan.num_rows
    rows, padding, graphs, eager = np.subtract(dataclasses.astuple(runner.passes), before).tolist()
    assert (rows, graphs, eager) == (num_rows + 1 + 1 + 1, 0, 4), "prompt and frame 0, one row and frame 1"
    assert padding == (0 if is_compiled(checkpoint) else -num_rows % 4 + 3 * 3)


def test_a_step_may_sample_nothing(runner: TalkerRunner, checkpoint: Checkpoint) -> None:
    utterance = prepare(checkpoint, TEXTS[1], greedy(checkpoint), 3)
    admission = Admission(utterance, 0, pages_of(0), chunk_rows=4)
    run(runner, checkpoint, [admission])
    assert len(admission.codes) == 3


@pytest.mark.parametrize("checkpoint", ["plain"], indirect=True)
def test_dummy_weights_run_without_a_weights_file(checkpoint: Checkpoint) -> None:
    config = EngineConfig.of(
        Path("/nonexistent"), load_format="dummy", talker_device="cpu", num_slots=1, max_context=128
    )
    sampling = dataclasses.replace(checkpoint.default_sampling, ignore_eos=True)
    elsewhere = dataclasses.replace(checkpoint, folder=config.model)
    runs = []
    for _ in range(2):
        utterance = prepare(checkpoint, TEXTS[0], sampling, 10)
        runs.append(run_alone(TalkerRunner(elsewhere, config), checkpoint, utterance))
    np.testing.assert_array_equal(*runs)
    assert len(np.unique(runs[0])) > 5
