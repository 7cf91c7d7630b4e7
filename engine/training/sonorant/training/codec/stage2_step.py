"""One step of the decoder's training: the decoder's losses, the discriminators', and both optimizers.

On CUDA a step is captured once and replayed: in the decoder, hundreds of small kernels follow each other, and starting
them one by one took most of the time.
"""

import copy
import logging
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sonorant.engine.model.codec.code2wav import Code2Wav
from sonorant.training.alignment import FRAME_SAMPLES, PHONES_PER_FRAME
from sonorant.training.codec.decoder import decode_latents
from sonorant.training.codec.discriminators import Discriminators
from sonorant.training.codec.quantizer import BookGroup
from sonorant.training.codec.settings import CodecSettings
from sonorant.training.codec.spectra import TARGET_MELS, SpectralDistance, SpectralTargets
from sonorant.training.codec.stage1 import QuantizedEncoder
from sonorant.training.teachers.speech import PHONES

logger = logging.getLogger(__name__)

MEL_WEIGHT, LOW_WEIGHT, FEATURES_WEIGHT, LATENT_MEL_WEIGHT = 15.0, 30.0, 2.0, 3.0
START_WEIGHT, START_SAMPLES = 50.0, 480  # spectra hardly show a click in the first samples of a sentence
# Mels do not see 0 Hz: without this, a trained decoder's silence was a constant of -37 dBFS, a click at each end.
OFFSET_WEIGHT, OFFSET_SAMPLES = 30.0, 480
AVERAGE_DECAY = 0.998
WARM_UP_RUNS = 3  # of a step before it is captured
BETAS, DECAY_OF_WEIGHTS, MAX_JUDGES_NORM = (0.8, 0.99), 0.01, 10.0


class TrainedDecoder(nn.Module):
    """The serving decoder with its quantizer's projections, and a head on its latents that is used only in training."""

    def __init__(self, code2wav: Code2Wav, books: QuantizedEncoder) -> None:
        super().__init__()
        self.code2wav = code2wav
        self.first_output = copy.deepcopy(books.first.output_proj)
        self.rest_output = copy.deepcopy(books.rest.output_proj)
        self.latent_head = nn.Linear(code2wav.config.latent_dim, TARGET_MELS + len(PHONES))

    def forward(self, first: Tensor, rest: Tensor) -> tuple[Tensor, Tensor]:
        """Summed codebook vectors of each group [crops, frames, vector_dim] -> samples and latents."""
        vectors = self.first_output(first.transpose(1, 2)) + self.rest_output(rest.transpose(1, 2))
        return decode_latents(self.code2wav, vectors)


class DecoderTrainer:
    """Owns the decoder in training, its average, the discriminators, both optimizers, and the tensors of a batch."""

    def __init__(
        self, code2wav: Code2Wav, books: QuantizedEncoder, settings: CodecSettings, device: torch.device, *, eager: bool
    ) -> None:
        self._cuda = device.type == "cuda"
        self._eager = eager or not self._cuda
        if (
            not self._eager
        ):  # gradients' nodes keep the stream they were made on: that of the capture, never the default
            self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            self._stream.wait_stream(torch.cuda.current_stream())
            torch.cuda.set_stream(self._stream)
        self.model = TrainedDecoder(code2wav, books).to(device)
        self.average = copy.deepcopy(self.model).requires_grad_(False)
        self.judges = Discriminators(settings.period_channels, settings.spectral_channels).to(device)
        self._books, self._settings = books, settings
        self._distance, self._targets = SpectralDistance().to(device), SpectralTargets().to(device)
        self._rates = {name: torch.zeros((), device=device) for name in ("optimizer", "judges_optimizer")}
        self._optimizer = self._adam("optimizer", [p for p in self.model.parameters() if p.requires_grad])
        self._judges_optimizer = self._adam("judges_optimizer", list(self.judges.parameters()))
        frames, crops = settings.stage2_crop
        self._samples = torch.zeros(crops, frames * FRAME_SAMPLES, device=device)
        self._phones = torch.zeros(crops, frames * PHONES_PER_FRAME, dtype=torch.long, device=device)
        self._starting = torch.zeros(crops, dtype=torch.bool, device=device)
        self._judged_from = torch.zeros((), dtype=torch.long, device=device)  # a frame
        self._judges_weight = torch.zeros((), device=device)
        self._graphs: dict[tuple[bool, bool], torch.cuda.CUDAGraph] = {}
        self._runs: dict[tuple[bool, bool], int] = {}
        self._parts: dict[tuple[bool, bool], dict[str, Tensor]] = {}

    def state(self) -> dict[str, Any]:
        return {name: part.state_dict() for name, part in self._parts_of_state().items()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Load a state. Call it before the first step: a captured step keeps the tensors of its capture."""
        for name, part in self._parts_of_state().items():
            part.load_state_dict(state[name])
        for name, optimizer in (("optimizer", self._optimizer), ("judges_optimizer", self._judges_optimizer)):
            for group in optimizer.param_groups:
                group["lr"] = self._rates[name]

    def step(
        self,
        crops: tuple[Tensor, Tensor, Tensor],
        rate: float,
        judges_weight: float | None,
        number: int,
        *,
        reads_latents: bool,
    ) -> dict[str, Tensor]:
        """Do step `number` on samples, phones and starts of `crops`; return the losses, which later steps overwrite.

        `rate`: share of the settings' rates. `judges_weight`: of the adversarial losses; None: no discriminators.
        """
        for kept, new in zip((self._samples, self._phones, self._starting), crops, strict=True):
            kept.copy_(new)
        self._rates["optimizer"].fill_(self._settings.stage2_rate * rate)
        self._rates["judges_optimizer"].fill_(self._settings.discriminator_rate * rate)
        self._judged_from.random_(0, self._settings.stage2_crop[0] - self._settings.compared_frames + 1)
        self._judges_weight.fill_(judges_weight or 0.0)
        parts = self._run((judges_weight is not None, reads_latents))
        decay = min(AVERAGE_DECAY, (number + 1) / (number + 20))
        torch._foreach_lerp_(list(self.average.parameters()), list(self.model.parameters()), 1 - decay)
        return parts

    def _run(self, kind: tuple[bool, bool]) -> dict[str, Tensor]:
        if graph := self._graphs.get(kind):
            graph.replay()
            return self._parts[kind]
        if self._eager:
            return self._step(*kind)
        runs = self._runs[kind] = self._runs.get(kind, 0) + 1
        if runs <= WARM_UP_RUNS:  # on a side stream, as capture requires
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                parts = self._step(*kind)
            torch.cuda.current_stream().wait_stream(side)
            return parts
        graph = torch.cuda.CUDAGraph()
        self._optimizer.zero_grad(set_to_none=True)
        self._judges_optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph, stream=self._stream):
            self._parts[kind] = self._step(*kind)
        self._graphs[kind] = graph
        logger.info("captured the decoder's step (discriminators: %s, latents: %s)", *kind)
        graph.replay()
        return self._parts[kind]

    def _step(self, judged: bool, reads_latents: bool) -> dict[str, Tensor]:
        samples = self._samples
        with self._autocast():
            with torch.no_grad():
                embedded = self._books.embed(samples)
                vectors = [quantized(group, embedded) for group in (self._books.first, self._books.rest)]
            made, latents = self.model(*vectors)
        made = made.float()
        mel, low = self._distance(made, samples)
        start = _start_distance(made, samples, self._starting)
        offset = _offset_distance(made, samples)
        loss = MEL_WEIGHT * mel + LOW_WEIGHT * low + START_WEIGHT * start + OFFSET_WEIGHT * offset
        if reads_latents:
            read = self.model.latent_head(latents.transpose(1, 2).float())
            loss = loss + _latent_loss(read, samples, self._phones, self._targets)
        parts = {"mel": mel, "low": low, "start": start, "offset": offset}
        if judged:
            real, own = self._compared(samples), self._compared(made)
            parts["judges"] = self._train_judges(real, own.detach())
            adversarial, features = self._judged(real, own)
            loss = loss + self._judges_weight * (adversarial + FEATURES_WEIGHT * features)
            parts |= {"adversarial": adversarial, "features": features}
        self._optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        self._optimizer.step()
        return {name: part.detach() for name, part in parts.items()}

    def _compared(self, samples: Tensor) -> Tensor:
        """The part of the crops that the discriminators see."""
        frames = torch.arange(self._settings.compared_frames, device=samples.device) + self._judged_from
        compared: Tensor = samples.view(len(samples), -1, FRAME_SAMPLES).index_select(1, frames).flatten(1)
        return compared

    def _train_judges(self, real: Tensor, made: Tensor) -> Tensor:
        self.judges.requires_grad_(True)
        with self._autocast():
            scores = [score.float().chunk(2) for score, _ in self.judges(torch.cat([real, made]))]
        loss = torch.stack([(1 - r).square().mean() + m.square().mean() for r, m in scores]).sum()
        self._judges_optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self.judges.parameters(), MAX_JUDGES_NORM)
        self._judges_optimizer.step()
        self.judges.requires_grad_(False)
        return loss.detach()

    def _judged(self, real: Tensor, made: Tensor) -> tuple[Tensor, Tensor]:
        """Return the adversarial loss of `made`, and the distance of the judges' features of `made` and `real`."""
        with self._autocast():
            with torch.no_grad():
                of_real = self.judges(real)
            of_made = self.judges(made)
        adversarial = torch.stack([(1 - score.float()).square().mean() for score, _ in of_made]).sum()
        pairs = [pair for (_, a), (_, b) in zip(of_made, of_real, strict=True) for pair in zip(a, b, strict=True)]
        return adversarial, torch.stack([(a - b).abs().mean().float() for a, b in pairs]).sum()

    def _autocast(self) -> torch.autocast:
        # Without a cache of rounded weights, which would outlive a capture.
        return torch.autocast(self._samples.device.type, torch.bfloat16, enabled=self._cuda, cache_enabled=False)

    def _adam(self, name: str, parameters: list[nn.Parameter]) -> torch.optim.AdamW:
        return torch.optim.AdamW(
            parameters,
            lr=self._rates[name],
            betas=BETAS,
            weight_decay=DECAY_OF_WEIGHTS,
            capturable=self._cuda,
            fused=self._cuda,
        )

    def _parts_of_state(self) -> Mapping[str, nn.Module | torch.optim.Optimizer]:
        return {
            "model": self.model,
            "average": self.average,
            "judges": self.judges,
            "optimizer": self._optimizer,
            "judges_optimizer": self._judges_optimizer,
        }


@torch.no_grad()
def quantized(group: BookGroup, embedded: Tensor) -> Tensor:
    return group.quantize(group.project(embedded), decay=None, revive=False)[0]


def _start_distance(made: Tensor, wanted: Tensor, starting: Tensor) -> Tensor:
    """Mean absolute difference of the first 20 ms, where a crop begins with its sentence, as a stream does."""
    difference = (made[:, :START_SAMPLES] - wanted[:, :START_SAMPLES]).abs().mean(1)
    return (difference * starting).sum() / starting.sum().clamp(min=1)


def _offset_distance(made: Tensor, wanted: Tensor) -> Tensor:
    """Mean absolute difference of the means of every 20 ms."""
    distance: Tensor = (made - wanted).view(len(made), -1, OFFSET_SAMPLES).mean(2).abs().mean()
    return distance


def _latent_loss(read: Tensor, samples: Tensor, phones: Tensor, targets: SpectralTargets) -> Tensor:
    mels, logits = read[..., :TARGET_MELS], read[..., TARGET_MELS:]
    wanted, _ = targets(samples)
    loss: Tensor = LATENT_MEL_WEIGHT * (mels - wanted).abs().mean()
    return loss + F.cross_entropy(logits.flatten(0, 1), phones.flatten())
