"""One step of the decoder's training, on a CPU; a captured step is the same code."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from sonorant.engine.checkpoint.folders import resolve_model
from sonorant.training.codec.reload import load_codec
from sonorant.training.codec.settings import SMALL_CODEC
from sonorant.training.codec.stage2_step import DecoderTrainer

SETTINGS = replace(SMALL_CODEC, stage2_crop=(3, 1), compared_frames=2, period_channels=(2, 4), spectral_channels=2)


def changed(module: nn.Module, before: dict[str, Tensor]) -> bool:
    return any(not torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())


def copied(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def test_discriminators_learn_and_judge_only_when_they_have_a_weight() -> None:
    torch.manual_seed(0)
    _, books, code2wav = load_codec(resolve_model("builtin_base"), SETTINGS)
    trainer = DecoderTrainer(code2wav, books, SETTINGS, torch.device("cpu"), eager=False)
    crops = 0.05 * torch.randn(1, 3 * 1920), torch.zeros(1, 12, dtype=torch.long), torch.ones(1, dtype=torch.bool)
    decoder, judges, own_books = copied(trainer.model), copied(trainer.judges), copied(books)
    parts = trainer.step(crops, 1.0, None, 0, reads_latents=True)
    assert changed(trainer.model, decoder) and changed(trainer.average, decoder)
    assert not changed(trainer.judges, judges)
    assert set(parts) == {"mel", "low", "start", "offset"}
    state, decoder = trainer.state(), copied(trainer.model)
    parts = trainer.step(crops, 0.0, 1.0, 1, reads_latents=False)
    assert set(parts) == {"mel", "low", "start", "offset", "judges", "adversarial", "features"}
    assert not changed(trainer.model, decoder) and not changed(trainer.judges, judges)  # at a rate of nothing
    trainer.load_state(state)
    trainer.step(crops, 1.0, 1.0, 1, reads_latents=False)  # rates are set in what was loaded, too
    assert changed(trainer.model, decoder) and changed(trainer.judges, judges)
    assert not changed(books, own_books)
