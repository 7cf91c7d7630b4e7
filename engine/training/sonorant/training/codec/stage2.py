"""Codec stage 2: trains the waveform decoder, on fixed codes; first by spectra, later by discriminators as well."""

import copy
import logging
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

from sonorant.engine.model.codec.code2wav import Code2Wav
from sonorant.training.alignment import FRAME_SAMPLES
from sonorant.training.clock import Clock, falling_rate
from sonorant.training.codec.decoder import decode_latents
from sonorant.training.codec.discriminators import Discriminators
from sonorant.training.codec.pool import SpeechPool
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
DISCRIMINATORS_FROM = 0.15  # of the time
DISCRIMINATORS_RAMP = 0.05
LATENT_LOSS_UNTIL = 0.6  # of the time; predicting phones and mels from the latents helps at the beginning
FULL_RATE_UNTIL, LAST_RATE = 0.5, 0.02
WARM_UP_STEPS = 100
AVERAGE_DECAY = 0.998
LOG_EVERY_STEPS = 200


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


def initialize_decoder(code2wav: Code2Wav) -> None:
    """Set initial weights: PyTorch's defaults for convolutions; small ones for linear layers and scales, so that
    residual branches start quiet."""
    for name, module in code2wav.named_modules():
        if isinstance(module, nn.Conv1d | nn.ConvTranspose1d):
            module.reset_parameters()
        elif isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=0.03)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.LayerNorm):
            module.reset_parameters()
        for parameter_name, parameter in module.named_parameters(name, recurse=False):
            last = parameter_name.rpartition(".")[2]
            if last in ("scale", "gamma"):
                nn.init.constant_(parameter, 0.1)
            elif last in ("alpha", "beta"):
                nn.init.zeros_(parameter)
            elif last == "weight" and parameter.ndim == 1:
                nn.init.ones_(parameter)


def train_stage2(
    code2wav: Code2Wav,
    books: QuantizedEncoder,
    pool: SpeechPool,
    settings: CodecSettings,
    poll: Callable[[], None],
    export: Callable[[TrainedDecoder], None],
    clock: Clock,
    *,
    ends_at_s: float,
    latent_loss_until: float = LATENT_LOSS_UNTIL,
) -> TrainedDecoder:
    """Train `code2wav`, given on the CPU with its initial weights, until `ends_at_s`; return the averaged decoder.

    `latent_loss_until`: a share of the time; 0 for a decoder that was trained before, which no new head shall disturb.

    `export` is called with the averaged decoder from time to time, `poll` between steps. Continues from the clock's
    state file if there is one.
    """
    device = pool.device
    model = TrainedDecoder(code2wav, books).to(device)
    average = copy.deepcopy(model).requires_grad_(False)
    judges = Discriminators(settings.period_channels, settings.spectral_channels).to(device)
    distance, targets = SpectralDistance().to(device), SpectralTargets().to(device)
    cuda = device.type == "cuda"
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=settings.stage2_rate, betas=(0.8, 0.99), weight_decay=0.01, fused=cuda)
    judges_optimizer = torch.optim.AdamW(
        judges.parameters(), lr=settings.discriminator_rate, betas=(0.8, 0.99), weight_decay=0.01, fused=cuda
    )
    parts_of_state: Mapping[str, nn.Module | torch.optim.Optimizer] = {
        "model": model,
        "average": average,
        "judges": judges,
        "optimizer": optimizer,
        "judges_optimizer": judges_optimizer,
    }
    if state := clock.resume():
        for name, part in parts_of_state.items():
            part.load_state_dict(state[name])
        logger.info("stage 2 goes on from step %d", clock.steps)
    clock.start(ends_at_s)
    progress = tqdm(desc="codec stage 2", unit="step", mininterval=10, disable=None)
    while (done := clock.done) < 1:
        poll()
        for group in optimizer.param_groups:
            group["lr"] = settings.stage2_rate * _rate(done, clock.steps)
        for group in judges_optimizer.param_groups:
            group["lr"] = settings.discriminator_rate * _rate(done, clock.steps)
        samples, phones, starting = pool.crops(*settings.stage2_crop, at_starts=0.25)
        with torch.autocast(device.type, torch.bfloat16, enabled=cuda):
            with torch.no_grad():
                embedded = books.embed(samples)
                vectors = [_quantized(group, embedded) for group in (books.first, books.rest)]
            made, latents = model(*vectors)
        made = made.float()
        mel, low = distance(made, samples)
        start = _start_distance(made, samples, starting)
        offset = _offset_distance(made, samples)
        loss = MEL_WEIGHT * mel + LOW_WEIGHT * low + START_WEIGHT * start + OFFSET_WEIGHT * offset
        if done < latent_loss_until:
            loss = loss + _latent_loss(model.latent_head(latents.transpose(1, 2).float()), samples, phones, targets)
        parts = {"mel": mel, "low": low, "start": start, "offset": offset}
        if done > DISCRIMINATORS_FROM:
            begin = int(torch.randint(settings.stage2_crop[0] - settings.compared_frames + 1, ())) * FRAME_SAMPLES
            span = slice(begin, begin + settings.compared_frames * FRAME_SAMPLES)
            parts["judges"] = _train_judges(judges, judges_optimizer, samples[:, span], made[:, span].detach(), cuda)
            weight = min(1.0, (done - DISCRIMINATORS_FROM) / DISCRIMINATORS_RAMP + 0.1)
            adversarial, features = _judged(judges, samples[:, span], made[:, span], cuda)
            loss = loss + weight * (adversarial + FEATURES_WEIGHT * features)
            parts |= {"adversarial": adversarial, "features": features}
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        optimizer.step()
        decay = min(AVERAGE_DECAY, (clock.steps + 1) / (clock.steps + 20))
        torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 1 - decay)
        clock.steps += 1
        progress.update()
        if clock.steps % LOG_EVERY_STEPS == 0:
            values = " ".join(f"{name}={value.item():.4g}" for name, value in parts.items())
            logger.info("step %d %s", clock.steps, values)
        if clock.wants_save:
            clock.save({name: part.state_dict() for name, part in parts_of_state.items()})
            export(average)
    clock.save({name: part.state_dict() for name, part in parts_of_state.items()})
    logger.info("stage 2 ended after %d steps", clock.steps)
    return average.eval()


@torch.no_grad()
def _quantized(group: BookGroup, embedded: Tensor) -> Tensor:
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


def _train_judges(
    judges: Discriminators, optimizer: torch.optim.Optimizer, real: Tensor, made: Tensor, autocast: bool
) -> Tensor:
    judges.requires_grad_(True)
    with torch.autocast(real.device.type, torch.bfloat16, enabled=autocast):
        scores = [score.float().chunk(2) for score, _ in judges(torch.cat([real, made]))]
    loss = torch.stack([(1 - r).square().mean() + m.square().mean() for r, m in scores]).sum()
    optimizer.zero_grad(set_to_none=True)
    torch.autograd.backward(loss)
    torch.nn.utils.clip_grad_norm_(judges.parameters(), 10.0)
    optimizer.step()
    judges.requires_grad_(False)
    return loss.detach()


def _judged(judges: Discriminators, real: Tensor, made: Tensor, autocast: bool) -> tuple[Tensor, Tensor]:
    """Return the adversarial loss of `made`, and the distance of the judges' features of `made` and `real`."""
    with torch.autocast(real.device.type, torch.bfloat16, enabled=autocast):
        with torch.no_grad():
            of_real = judges(real)
        of_made = judges(made)
    adversarial = torch.stack([(1 - score.float()).square().mean() for score, _ in of_made]).sum()
    pairs = [pair for (_, a), (_, b) in zip(of_made, of_real, strict=True) for pair in zip(a, b, strict=True)]
    return adversarial, torch.stack([(a - b).abs().mean().float() for a, b in pairs]).sum()


def _rate(done: float, steps: int) -> float:
    return falling_rate(done, steps, warm_up_steps=WARM_UP_STEPS, full_until=FULL_RATE_UNTIL, last=LAST_RATE)
