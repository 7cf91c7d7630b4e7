"""Runs optimizer steps of the talker; on CUDA, a step is a captured graph of the same code.

Owns parameters, their average, optimizer and schedule values. The caller decides what is in a batch and when training
ends.
"""

import logging
from collections.abc import Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.training.languages import LANGUAGES
from sonorant.training.talker.losses import (
    Anchor,
    Block,
    DeviceBatch,
    Losses,
    Regularization,
    TrainedTalker,
    compute_losses,
    initialize,
    load_talker,
    run_block,
)
from sonorant.training.talker.packing import Batch, BatchShape
from sonorant.training.talker.rows import RowStore

logger = logging.getLogger(__name__)

GUIDE_WEIGHT_START, GUIDE_WEIGHT_END = 0.3, 0.1
PREDICTOR_WEIGHT = 2.0
PHONES_WEIGHT = 0.3
TRAITS_WEIGHT = 0.2
DRIFT_WEIGHT = 2.0
AVERAGE_DECAY = 0.999
WARM_UP_STEPS = 3
VALUES = ("first", "predictor", "guide", "phones", "traits", "drift", "gradient_norm")  # losses, before their weights


@dataclass(frozen=True, slots=True)
class TrainerSettings:
    shape: BatchShape
    regularization: Regularization
    weight_decay: float = 0.05
    max_gradient_norm: float = 1.0


class Trainer:
    def __init__(
        self,
        checkpoint: Checkpoint,
        store: RowStore,
        settings: TrainerSettings,
        device: torch.device,
        seed: int,
        *,
        eager: bool,
    ):
        torch.manual_seed(seed)
        torch.backends.cudnn.benchmark = True  # all batches have one shape
        self.model = TrainedTalker(checkpoint)
        initialize(self.model, seed)
        self.model.to(device)
        self.device = device
        self._store, self._settings = store, settings
        self._parameters: list[Tensor] = list(self.model.parameters())
        self.average = [p.detach().clone() for p in self._parameters]
        self._learning_rate = torch.zeros((), device=device)
        self._guide_weight = torch.zeros((), device=device)
        matrices = [p for p in self._parameters if p.ndim > 1]
        vectors = [p for p in self._parameters if p.ndim == 1]
        self._optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": vectors, "weight_decay": 0.0}],
            lr=self._learning_rate,
            betas=(0.9, 0.98),
            capturable=device.type == "cuda",
            fused=device.type == "cuda",
        )
        shape = settings.shape
        sizes = {"references": (shape.num_references,)}
        self._batch = DeviceBatch(
            **{
                field.name: torch.zeros(
                    sizes.get(field.name, (shape.num_rows, shape.length)), dtype=torch.int32, device=device
                )
                for field in fields(DeviceBatch)
            }
        )
        self.values = torch.zeros(len(VALUES), device=device)
        self._eager = eager or device.type != "cuda"
        self._block = run_block if self._eager else _compiled_block()
        self._graphs: dict[bool, torch.cuda.CUDAGraph] = {}
        self._anchor: Anchor | None = None

    def prepare(self) -> None:
        """Compile and capture both kinds of step, which takes a minute or two on CUDA. Needs no data: it steps on an
        empty batch, and restores the weights afterwards."""
        if self._eager:
            return
        before = [tensor.clone() for tensor in self._tensors()]
        for own_history in (False, True):
            self._graphs[own_history] = self._capture(own_history)
        after = self._tensors()
        before += [torch.zeros_like(tensor) for tensor in after[len(before) :]]  # for the optimizer's, which may be new
        torch._foreach_copy_(after, before)

    def _tensors(self) -> list[Tensor]:
        """All tensors that a step changes. The optimizer's come last, as they do not exist before the first step."""
        states = [self._optimizer.state.get(parameter, {}) for parameter in self._parameters]
        moments = [tensor for state in states for tensor in state.values()]
        return [*(p.detach() for p in self._parameters), *self.average, *moments]

    def set_schedule(self, learning_rate: float, guide_weight: float) -> None:
        self._learning_rate.fill_(learning_rate)
        self._guide_weight.fill_(guide_weight)

    def step(self, batch: Batch, *, own_history: bool) -> None:
        """Start one step; on CUDA, it still runs when this returns. `values` are those of the last finished step."""
        self._load(batch)
        if self._eager:
            self._step(own_history)
        else:
            self._graphs[own_history].replay()

    @torch.no_grad()
    def evaluate(self, batch: Batch) -> Losses:
        """Return the losses of the averaged weights, without dropout."""
        self._load(batch)
        no_noise = Regularization(0.0, 0.0, own_frames=0, predictor_frames=0, augmented_references=False)
        live = [p.detach().clone() for p in self._parameters]
        torch._foreach_copy_(self._parameters, self.average)
        with self._autocast():
            losses = compute_losses(self.model, self._store, self._batch, no_noise)
        torch._foreach_copy_(self._parameters, live)
        return losses

    def state(self) -> Mapping[str, Any]:
        return {"model": self.model.state_dict(), "average": self.average, "optimizer": self._optimizer.state_dict()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Load a state. Call it before `prepare`: captured graphs keep using the tensors of their capture."""
        self.model.load_state_dict(state["model"])
        torch._foreach_copy_(self.average, [t.to(self.device) for t in state["average"]])
        self._optimizer.load_state_dict(state["optimizer"])
        for group in self._optimizer.param_groups:
            group["lr"] = self._learning_rate

    def load_talker(self, tensors: Mapping[str, Tensor]) -> None:
        """Load talker and speaker encoder of a checkpoint. Call it before `prepare`."""
        load_talker(self.model, tensors)
        torch._foreach_copy_(self.average, [p.detach() for p in self._parameters])

    def hold(self, languages: Collection[str]) -> None:
        """Hold the talker, in these languages, to what its weights now make. Call it before `prepare`."""
        model = deepcopy(self.model).requires_grad_(False)
        self._anchor = Anchor(model, torch.tensor([name in languages for name in LANGUAGES], device=self.device))

    def averaged_talker(self) -> dict[str, Tensor]:
        """The averaged tensors of talker and speaker encoder, by their names in a checkpoint."""
        names = [name for name, _ in self.model.named_parameters()]
        tensors = dict(zip(names, self.average, strict=True))
        return {name: tensor for name, tensor in tensors.items() if name.startswith(("talker.", "speaker_encoder."))}

    def _load(self, batch: Batch) -> None:
        for field in fields(DeviceBatch):
            values = torch.from_numpy(getattr(batch, field.name))
            getattr(self._batch, field.name).copy_(values, non_blocking=True)

    def _capture(self, own_history: bool) -> torch.cuda.CUDAGraph:
        """Capture a step, after some on a side stream, as capture requires."""
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP_STEPS):
                self._step(own_history)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        self._optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            self._step(own_history)
        logger.info("captured the training step (own history: %s)", own_history)
        return graph

    def _step(self, own_history: bool) -> None:
        reg = self._settings.regularization
        if not own_history:
            reg = replace(reg, own_frames=0)
        self._optimizer.zero_grad(set_to_none=True)
        with self._autocast():
            losses = compute_losses(self.model, self._store, self._batch, reg, self._block, self._anchor)
        weighted = (
            losses.first
            + PREDICTOR_WEIGHT * losses.predictor
            + self._guide_weight * losses.guide
            + PHONES_WEIGHT * losses.phones
            + TRAITS_WEIGHT * losses.traits
            + DRIFT_WEIGHT * losses.drift
        )
        torch.autograd.backward(weighted)
        norm = torch.nn.utils.clip_grad_norm_(self._parameters, self._settings.max_gradient_norm)
        self._optimizer.step()
        torch._foreach_lerp_(self.average, [p.detach() for p in self._parameters], 1 - AVERAGE_DECAY)
        parts = (losses.first, losses.predictor, losses.guide, losses.phones, losses.traits, losses.drift, norm)
        self.values.copy_(torch.stack([part.detach().float() for part in parts]))

    def _autocast(self) -> torch.autocast:
        # The cache of casts must not outlive a captured step.
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda", cache_enabled=False)


def _compiled_block() -> Block:
    torch._dynamo.config.recompile_limit = 64
    compiled: Block = torch.compile(run_block, dynamic=False)
    return compiled
