"""What the alignment head gives the text is told of the rows that ask, the same by plain and fused steps."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from sonorant.engine.checkpoint.config import Checkpoint, load_checkpoint
from sonorant.engine.config import EngineConfig
from sonorant.engine.cpu.library import library
from sonorant.engine.talker.run.runner import TalkerRunner
from sonorant.engine.talker.schedule.rows import DecodeRow, PrefillRow
from sonorant.engine.talker.schedule.text_tracker import WINDOW
from sonorant.engine.types import Float32Array
from tests.engine.talker.driver import Utterance, prepare
from tests.tiny_checkpoint import write_tiny_checkpoint

NUM_FRAMES = 3
PAGES = ((3, 1, 6, 4, 2), (5, 0, 7, 8, 9))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return load_checkpoint(write_tiny_checkpoint(tmp_path_factory.mktemp("tiny"), "custom_voice"))


@pytest.fixture
def utterances(checkpoint: Checkpoint) -> list[Utterance]:
    return both(checkpoint)


def both(checkpoint: Checkpoint) -> list[Utterance]:
    greedy = dataclasses.replace(checkpoint.default_sampling, do_sample=False, subtalker_do_sample=False)
    speaker = next(iter(checkpoint.talker.speaker_ids))
    texts = (("Hello there, how are you?", True), ("Fine!", False))
    return [
        prepare(checkpoint, text, greedy, NUM_FRAMES, speaker=speaker, non_streaming_mode=whole)
        for text, whole in texts
    ]


def new_runner(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, *, fused: bool | None, device: str = "cpu"
) -> TalkerRunner:
    """The best head of random weights will do to see how it looks."""
    monkeypatch.setattr("sonorant.engine.model.alignment.LEAST_SHARE", 0.0)
    config = EngineConfig.of(
        checkpoint.folder, dtype="float32", talker_device=device, num_slots=2, num_pages=20, max_context=160
    )
    return TalkerRunner(checkpoint, config, fused=fused, finds_alignment=True)


def prompt(utterance: Utterance, slot: int, stop: int | None = None, start: int = 0) -> PrefillRow:
    plan = utterance.plan
    end = plan.num_rows if stop is None else stop
    return PrefillRow(slot, PAGES[slot], plan, start, end, utterance.sampling, None, None, allow_eos=False)


def decode(checkpoint: Checkpoint, utterance: Utterance, slot: int, frame: int, *, watched: bool = True) -> DecodeRow:
    plan = utterance.plan
    text_id = plan.trailing[frame - 1] if frame <= len(plan.trailing) else checkpoint.text_ids.tts_pad
    position = plan.num_rows - 1 + frame
    return DecodeRow(slot, text_id, position, frame, False, plan.text_row if watched else -1)


def there(logits: Float32Array, row: DecodeRow) -> Float32Array:
    """Without what stands behind the row itself, which may have any value."""
    return logits[: min(WINDOW, row.position - row.watched + 1)]


def scores(runner: TalkerRunner, checkpoint: Checkpoint, utterances: list[Utterance]) -> list[Float32Array]:
    """Of both, in steps of all kinds: alone, together, beside prompts; one at a time that watches."""
    first, second = utterances
    runner.step([prompt(first, 0)], [])
    assert runner.text_logits is not None and runner.text_logits.shape == (0, WINDOW)
    seen = []

    def step(prefills: list[PrefillRow], decodes: list[DecodeRow]) -> None:
        runner.step(prefills, decodes)
        assert runner.text_logits is not None
        watched = [row for row in decodes if row.watched >= 0]
        assert runner.text_logits.shape == (len(watched), WINDOW)
        seen.extend(there(logits, row) for logits, row in zip(runner.text_logits, watched, strict=True))

    step([], [decode(checkpoint, first, 0, 1)])
    step([prompt(second, 1)], [decode(checkpoint, first, 0, 2)])
    step([], [decode(checkpoint, first, 0, 3, watched=False), decode(checkpoint, second, 1, 1)])
    step([], [decode(checkpoint, second, 1, 2), decode(checkpoint, first, 0, 4)])
    step([], [decode(checkpoint, first, 0, 5, watched=False)])
    return seen


def test_a_row_looks_the_same_in_any_company(
    checkpoint: Checkpoint, utterances: list[Utterance], monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = new_runner(checkpoint, monkeypatch, fused=False)
    together = scores(runner, checkpoint, utterances)
    first = utterances[0]
    runner.step([prompt(first, 1)], [])
    alone = []
    for frame in (1, 2, 3, 4):
        row = decode(checkpoint, first, 1, frame)
        runner.step([], [row])
        assert runner.text_logits is not None
        alone.append(there(runner.text_logits[0], row))
    for one, other in zip((together[0], together[1], together[4]), (alone[0], alone[1], alone[3]), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
        assert np.ptp(one) > 1e-3


@pytest.mark.skipif(library() is None, reason="installed without a C compiler")
def test_the_same_by_compiled_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = load_checkpoint(write_tiny_checkpoint(tmp_path, seed=1, head_dim=16, predictor_hidden=32))
    utterances = both(checkpoint)
    plain = scores(new_runner(checkpoint, monkeypatch, fused=False), checkpoint, utterances)
    compiled = scores(new_runner(checkpoint, monkeypatch, fused=None), checkpoint, utterances)
    for one, other in zip(plain, compiled, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.slow
@pytest.mark.rare
def test_the_same_by_fused_steps(
    checkpoint: Checkpoint, utterances: list[Utterance], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton", reason="Triton comes with the CUDA builds of torch, and with the extra `dev`")
    monkeypatch.setattr("sonorant.engine.kernels.talker.attention.WARPS_WANTED", 1)  # each costs milliseconds here
    plain = scores(new_runner(checkpoint, monkeypatch, fused=False), checkpoint, utterances)
    fused = scores(new_runner(checkpoint, monkeypatch, fused=True), checkpoint, utterances)
    for one, other in zip(plain, fused, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


@pytest.mark.slow
@pytest.mark.rare
def test_they_are_known_before_the_frames_are_fetched(
    checkpoint: Checkpoint, utterances: list[Utterance], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host works with them while the device draws the frames. It may start a step before it fetches those."""
    pytest.importorskip("triton", reason="Triton comes with the CUDA builds of torch, and with the extra `dev`")
    monkeypatch.setattr("sonorant.engine.kernels.talker.attention.WARPS_WANTED", 1)  # each costs milliseconds here
    runner = new_runner(checkpoint, monkeypatch, fused=True)
    assert runner.is_asynchronous

    def num_logits() -> int:
        assert runner.text_logits is not None
        return len(runner.text_logits)

    first, second = ([decode(checkpoint, utterances[1], 1, frame)] for frame in (1, 2))
    runner.start([prompt(utterances[1], 1)], [])
    assert num_logits() == 0
    runner.start([], first)
    assert num_logits() == 1
    runner.wait_until_nearly_over()
    ahead = [runner.finish()]
    runner.start([], second)
    ahead += [runner.finish(), runner.finish()]
    one_by_one = [runner.step([prompt(utterances[1], 1)], []), runner.step([], first), runner.step([], second)]
    np.testing.assert_array_equal(ahead, one_by_one)


@pytest.mark.gpu
def test_the_same_by_graphs(
    checkpoint: Checkpoint, utterances: list[Utterance], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = scores(new_runner(checkpoint, monkeypatch, fused=False), checkpoint, utterances)
    graphs = scores(new_runner(checkpoint, monkeypatch, fused=True, device="cuda"), checkpoint, utterances)
    for one, other in zip(plain, graphs, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-3)
