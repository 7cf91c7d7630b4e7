import numpy as np
import pytest
import torch

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.training.settings import TOY
from sonorant.training.talker.packing import BatchShape, Mix, Sampler
from sonorant.training.talker.trainer import Trainer, TrainerSettings
from tests.training.spoken_shards import random_codes, shard_of, store_of


class StepsInsteadOfGraphs(Trainer):
    """What capturing does before it captures, without CUDA."""

    def _capture(self, own_history: bool) -> None:  # type: ignore[override]
        self._step(own_history)


def test_preparing_changes_nothing(checkpoint: Checkpoint) -> None:
    store = store_of(checkpoint, shard_of(random_codes(checkpoint, 30, 40)))
    shape = BatchShape(num_rows=1, length=64)
    settings = TrainerSettings(shape, TOY.talker.trainer.regularization)
    first = StepsInsteadOfGraphs(checkpoint, store, settings, torch.device("cpu"), seed=1, eager=True)
    second = StepsInsteadOfGraphs(checkpoint, store, settings, torch.device("cpu"), seed=1, eager=True)
    batch = Sampler(store, shape, Mix(whole_text=0.5), seed=0).batch()
    for trainer in (first, second):
        trainer.set_schedule(1e-3, 0.1)
    second._eager = False
    second.prepare()
    second._eager = True
    for trainer in (first, second):
        torch.manual_seed(2)
        trainer.step(batch, own_history=True)
    assert np.isfinite(first.values.tolist()).all()
    for a, b in zip(first._tensors(), second._tensors(), strict=True):
        assert torch.equal(a, b)
    resumed = StepsInsteadOfGraphs(checkpoint, store, settings, torch.device("cpu"), seed=3, eager=True)
    resumed.load_state(first.state())
    resumed._eager = False
    resumed.prepare()
    for a, b in zip(first._tensors(), resumed._tensors(), strict=True):
        assert torch.equal(a, b)
    begun = StepsInsteadOfGraphs(checkpoint, store, settings, torch.device("cpu"), seed=3, eager=True)
    begun.load_talker(first.averaged_talker())
    for name, tensor in begun.averaged_talker().items():
        assert torch.equal(tensor, first.averaged_talker()[name])
    with pytest.raises(ValueError, match="of another model"):
        begun.load_talker({"talker.other": torch.zeros(1)})
