"""Training sees what serving sees: the same rows, and the same first choices of codes."""

from copy import deepcopy
from pathlib import Path

import pytest
import torch

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.checkpoint.folders import BUILTIN_VOICE_DIR
from sonorant.engine.model.weights import TensorFile
from sonorant.engine.offline import synthesize
from sonorant.engine.prompt.layout import PromptLayout
from sonorant.engine.prompt.tokenizer import Tokenizer
from sonorant.engine.types import NO_ID, SynthesisParams
from sonorant.training.languages import LANGUAGES
from sonorant.training.talker.losses import Anchor, Regularization, TrainedTalker, compute_losses, initialize
from sonorant.training.talker.packing import BatchShape, Mix, Sampler, pack, piece_of
from sonorant.training.talker.rows import END, LAYOUTS, NOTHING, head_rows
from tests.training.spoken_shards import TEXT, on_device, random_codes, shard_of, store_of

EXACT = Regularization(dropout=0.0, corrupted=0.0, own_frames=0, predictor_frames=0)


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("language", ["english", "auto"])
def test_rows_are_the_prompt_that_serving_assembles(checkpoint: Checkpoint, layout: int, language: str) -> None:
    [codes] = random_codes(checkpoint, 30)
    store = store_of(checkpoint, shard_of([codes]))
    piece = piece_of(store, store.training[0], layout, language)
    batch = pack([[piece]], BatchShape(1, piece.length), {})
    params = SynthesisParams(
        sampling=checkpoint.default_sampling,
        speaker=next(iter(checkpoint.talker.speaker_ids)),
        language=language,
        non_streaming_mode=bool(layout),
    )
    tokenizer = Tokenizer.load(BUILTIN_VOICE_DIR)
    plan = PromptLayout(params, checkpoint, tokenizer).plan(tokenizer.encode(TEXT), ended=True)
    assert plan is not None
    fed = [*plan.trailing, *[checkpoint.text_ids.tts_pad] * 30][:30]  # what comes with each frame
    index = torch.from_numpy(batch.index[0]).long()
    assert store.text[index].tolist() == [*plan.text_ids, *fed]
    assert store.control[index].tolist() == [*plan.codec_items, *[NO_ID] * 30]
    first_frame = plan.num_rows
    assert store.frame[index].tolist() == [NOTHING] * first_frame + list(range(30))
    assert store.target[index].tolist() == [NOTHING] * (first_frame - 1) + [*range(30), END]
    assert torch.equal(store.codes[:30], torch.from_numpy(codes))


def test_text_that_has_not_come_is_no_guide(checkpoint: Checkpoint) -> None:
    store = store_of(checkpoint, shard_of(random_codes(checkpoint, 30)))
    start, length = store.training[0].tails[0]
    guide = store.guide[start : start + length].tolist()
    assert all(token <= row for row, token in enumerate(guide))


def test_batches_have_one_shape_and_whole_sentences(checkpoint: Checkpoint) -> None:
    shard = shard_of(random_codes(checkpoint, *range(10, 60)))
    store = store_of(checkpoint, shard, held_out=frozenset({3}))
    assert (len(store.training), len(store.held_out)) == (49, 1)
    sampler = Sampler(store, BatchShape(4, 256), Mix(whole_text=0.5), seed=0)
    for _ in range(5):
        batch = sampler.batch()
        assert batch.index.shape == (4, 256)
        targets = store.target[torch.from_numpy(batch.index).long()].numpy()
        assert (targets == END).sum() == batch.num_sentences  # each sentence reaches its end
        assert ((batch.segment >= 0) == (batch.index > 0)).all()


@pytest.mark.parametrize("layout", [0, 1])
def test_the_model_chooses_the_codes_that_serving_chose(checkpoint: Checkpoint, layout: int) -> None:
    """Greedy codes are each the likeliest given those before them, which is what training computes in one pass."""
    spoken = [synthesize(TEXT, greedy=True, language="english", non_streaming_mode=bool(layout)).codes]
    store = store_of(checkpoint, shard_of(spoken * 3, voice=0))
    piece = piece_of(store, store.training[0], layout, "english")
    batch = pack([[piece, piece], [piece]], BatchShape(2, 2 * piece.length), {})
    model = TrainedTalker(checkpoint)
    initialize(model, seed=0)
    file = TensorFile(BUILTIN_VOICE_DIR / "model.safetensors")
    tensors = file.load(list(file.names), torch.device("cpu"), torch.float32)
    model.talker.load_state_dict({name.removeprefix("talker."): t for name, t in tensors.items()})
    with torch.no_grad():
        losses = compute_losses(model, store, on_device(batch), EXACT)
        own = compute_losses(
            model, store, on_device(batch), Regularization(0.0, 0.0, own_frames=40, predictor_frames=0)
        )
    assert int(losses.num_frames) == 3 * len(spoken[0])
    assert int(losses.first_hits.sum()) == int(losses.num_frames)
    assert int(losses.predictor_hits.sum()) == int(losses.num_frames) * (checkpoint.talker.num_codebooks - 1)
    assert torch.allclose(own.first, losses.first, atol=1e-4)  # what the model says itself is what was there


def test_the_drift_is_that_of_the_languages_that_the_talker_spoke(checkpoint: Checkpoint) -> None:
    store = store_of(checkpoint, shard_of(random_codes(checkpoint, 20, 30)))
    pieces = [piece_of(store, sentence, 0, "english") for sentence in store.training]
    batch = on_device(pack([pieces], BatchShape(1, sum(p.length for p in pieces)), {}))
    model = TrainedTalker(checkpoint)
    initialize(model, seed=0)
    before = deepcopy(model).requires_grad_(False)

    def drift(*languages: str) -> float:
        anchor = Anchor(before, torch.tensor([name in languages for name in LANGUAGES]))
        return float(compute_losses(model, store, batch, EXACT, anchor=anchor).drift.detach())

    assert abs(drift("english")) < 1e-5
    with torch.no_grad():
        model.talker.codec_head.weight += 0.1 * torch.randn_like(model.talker.codec_head.weight)
    assert drift("english") > 1e-3
    assert drift("spanish") == 0.0  # no sentence is Spanish
    losses = compute_losses(model, store, batch, EXACT, anchor=Anchor(before, torch.ones(len(LANGUAGES)).bool()))
    losses.drift.backward()
    assert model.talker.codec_head.weight.grad is not None
    assert all(parameter.grad is None for parameter in before.parameters())


def test_heads_end_before_the_first_text(checkpoint: Checkpoint) -> None:
    text, control = head_rows(checkpoint, Path(BUILTIN_VOICE_DIR), list(checkpoint.talker.speaker_ids)[1], "auto")
    assert len(text) == len(control) == 8
    assert control[-1] == checkpoint.talker.codec_pad_id
    assert len(LAYOUTS) == 2
