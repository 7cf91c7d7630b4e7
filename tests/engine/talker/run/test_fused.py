"""The fused steps say what the plain ones say. Without a GPU the kernels are interpreted, which is slow: few frames."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch

from sonorant.engine.checkpoint.config import Checkpoint
from tests.engine.talker.driver import Admission, Utterance, run, run_alone
from tests.engine.talker.run._support import PAGES_PER_SLOT, checkpoint, new_runner, utterances

__all__ = ["checkpoint"]  # the fixture

pytest.importorskip("triton", reason="Triton comes with the CUDA builds of torch, and with the extra `dev`")


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
    monkeypatch.setattr("sonorant.engine.deferred_work.PAUSE_S", 0.0)
    made = utterances(checkpoint, 9, 30)
    whole = run(new_runner(checkpoint, "cuda", 9, fused=True), checkpoint, admissions(made))
    runner = new_runner(checkpoint, "cuda", 9, fused=True, hurries=True)
    start, begun = runner.start, run(runner, checkpoint, admissions(made))

    def start_and_capture(*rows: Any) -> None:
        start(*rows)
        runner.do_deferred()  # while the step is under way

    monkeypatch.setattr(runner, "start", start_and_capture)
    during = run(runner, checkpoint, admissions(made))
    assert runner.do_deferred() is None, "all graphs are captured"
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
