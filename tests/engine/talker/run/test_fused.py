"""The fused steps say what the plain ones say. Without a GPU the kernels are interpreted, which is slow: few frames."""

import dataclasses
import warnings
from typing import Any

import numpy as np
import pytest
import torch

from sonorant.engine.checkpoint.config import Checkpoint, load_checkpoint
from sonorant.engine.config import EngineConfig
from sonorant.engine.talker.run.runner import TalkerRunner
from tests.engine.talker.driver import Admission, Utterance, prepare, run, run_alone
from tests.tiny_checkpoint import write_tiny_checkpoint

pytest.importorskip("triton", reason="Triton comes with the CUDA builds of torch, and with the extra `dev`")

PAGES_PER_SLOT = 8
TEXTS = ("Hello world.", "The quick brown fox jumps over the lazy dog and speaks slowly.", "Fine!")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return load_checkpoint(write_tiny_checkpoint(tmp_path_factory.mktemp("tiny"), "base"))


def new_runner(
    checkpoint: Checkpoint, device: str, num_slots: int, *, fused: bool, eager: bool = False, hurries: bool = False
) -> TalkerRunner:
    config = EngineConfig.of(
        checkpoint.folder,
        dtype="float32",
        talker_device=device,
        num_slots=num_slots,
        num_pages=num_slots * PAGES_PER_SLOT,
        max_context=PAGES_PER_SLOT * 16,
        enforce_eager=eager,
    )
    return TalkerRunner(checkpoint, config, fused=fused, hurries=hurries)


def utterances(checkpoint: Checkpoint, count: int, num_frames: int) -> list[Utterance]:
    """Greedy and sampled, with and without a reference, short prompts and long ones."""
    rng = np.random.default_rng(0)
    hidden, books = checkpoint.talker.stack.hidden_size, checkpoint.talker.num_codebooks
    made = []
    for i in range(count):
        sampling = dataclasses.replace(checkpoint.default_sampling, seed=i, top_p=0.8 if i % 4 == 1 else 1.0)
        if i % 2 == 0:
            sampling = dataclasses.replace(sampling, do_sample=False, subtalker_do_sample=False)
        params: dict[str, Any] = {"x_vector": rng.standard_normal(hidden, np.float32), "language": "english"}
        if i % 3 == 0:
            params["reference_codes"] = rng.integers(0, 64, (12 + 4 * i, books), np.int16)
            params["reference_text"] = TEXTS[2]
        made.append(prepare(checkpoint, TEXTS[i % len(TEXTS)], sampling, num_frames - i % 3, **params))
    return made


def admissions(made: list[Utterance]) -> list[Admission]:
    """Prompts begin beside streams that are already decoding; the pages of a slot are in any order, and every other
    stream is given them when it needs them."""
    pages = np.random.default_rng(1).permutation(len(made) * PAGES_PER_SLOT).reshape(len(made), -1).tolist()
    return [
        Admission(u, i, tuple(pages[i]), first_step=(2 * i) % 5, chunk_rows=17, grows=i % 2 == 0)
        for i, u in enumerate(made)
    ]


@pytest.mark.slow
def test_the_same_codes_as_the_plain_steps(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sonorant.engine.kernels.talker.attention.WARPS_WANTED", 1)  # each costs milliseconds here
    made = utterances(checkpoint, 2, 3)
    plain = run(new_runner(checkpoint, "cpu", 2, fused=False), checkpoint, admissions(made))
    fused = run(new_runner(checkpoint, "cpu", 2, fused=True), checkpoint, admissions(made))
    for one, other in zip(plain, fused, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.gpu
def test_graphs_eager_and_the_cpu_agree(checkpoint: Checkpoint) -> None:
    made = utterances(checkpoint, 9, 30)
    plain = run(new_runner(checkpoint, "cpu", 9, fused=False), checkpoint, admissions(made))
    runner, eager_runner = (new_runner(checkpoint, "cuda", 9, fused=True, eager=each) for each in (False, True))
    graphs = run(runner, checkpoint, admissions(made))
    eager = run(eager_runner, checkpoint, admissions(made))
    assert runner.passes.num_eager == 0 < runner.passes.num_graphs
    assert eager_runner.passes.num_graphs == 0 < eager_runner.passes.num_eager
    for one, other, third in zip(plain, graphs, eager, strict=True):
        np.testing.assert_array_equal(other, third)
        np.testing.assert_array_equal(one, other)


@pytest.mark.gpu
def test_codes_are_the_same_while_graphs_are_still_captured(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sonorant.engine.later.PAUSE_S", 0.0)
    made = utterances(checkpoint, 9, 30)
    whole = run(new_runner(checkpoint, "cuda", 9, fused=True), checkpoint, admissions(made))
    runner = new_runner(checkpoint, "cuda", 9, fused=True, hurries=True)
    start, begun = runner.start, run(runner, checkpoint, admissions(made))

    def start_and_capture(*rows: Any) -> None:
        start(*rows)
        runner.get_ready()  # while the step is under way

    monkeypatch.setattr(runner, "start", start_and_capture)
    during = run(runner, checkpoint, admissions(made))
    assert runner.get_ready() is None, "all graphs are captured"
    after = run(runner, checkpoint, admissions(made))
    assert runner.passes.num_eager == 0
    for one, *others in zip(whole, begun, during, after, strict=True):
        for other in others:
            np.testing.assert_array_equal(one, other)


@pytest.mark.gpu
def test_a_stream_says_the_same_alone_and_in_company_on_a_gpu(checkpoint: Checkpoint) -> None:
    made = utterances(checkpoint, 9, 30)
    runner = new_runner(checkpoint, "cuda", 9, fused=True)
    together = run(runner, checkpoint, admissions(made))
    for utterance, codes in zip(made, together, strict=True):
        np.testing.assert_array_equal(run_alone(runner, checkpoint, utterance), codes)


@pytest.mark.gpu
@pytest.mark.parametrize("eager", [False, True])
def test_a_step_never_waits_but_for_its_codes(checkpoint: Checkpoint, eager: bool) -> None:
    runner = new_runner(checkpoint, "cuda", 9, fused=True, eager=eager)
    made = utterances(checkpoint, 9, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        run(runner, checkpoint, admissions(made))
    finally:
        torch.cuda.set_sync_debug_mode("default")
