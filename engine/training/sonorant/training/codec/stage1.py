"""Codec stage 1: trains encoder and codebooks to keep phones and spectra, without a waveform decoder.

If they are trained through a decoder, codes fill up with waveform detail that neither decoder nor talker can use, and
lose phones.
"""

import logging
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

from sonorant.engine.model.codec.codec_encoder import CodecEncoder
from sonorant.training.alignment import PHONES_PER_FRAME
from sonorant.training.clock import Clock, falling_rate
from sonorant.training.codec.pool import SpeechPool
from sonorant.training.codec.quantizer import BookGroup
from sonorant.training.codec.settings import CodecSettings
from sonorant.training.codec.spectra import TARGET_LOW_BINS, TARGET_MELS, SpectralTargets
from sonorant.training.teachers.speech import PHONES

logger = logging.getLogger(__name__)

MEL_WEIGHT, LOW_WEIGHT, PHONES_WEIGHT, FIRST_PHONES_WEIGHT, COMMITMENT_WEIGHT = 10.0, 4.0, 1.5, 0.5, 0.3
WARM_UP_STEPS = 100
REVIVE_EVERY_STEPS, REVIVE_UNTIL = 20, 0.8
BOOKS_FROZEN_FROM = 0.97
FULL_RATE_UNTIL, LAST_RATE = 0.45, 0.02
MAX_GRADIENT_NORM = 5.0
LOW_STEPS_PER_FRAME = 2
LOG_EVERY_STEPS = 200


class QuantizedEncoder(nn.Module):
    """Mimi's encoder, trainable books, and the head that reads phones and spectra from the quantized vectors."""

    def __init__(self, encoder: CodecEncoder, settings: CodecSettings) -> None:
        super().__init__()
        s = settings
        self.encoder, self.encoder_transformer, self.downsample = (
            encoder.encoder,
            encoder.encoder_transformer,
            encoder.downsample,
        )
        sizes = (s.num_codes, s.vector_dim, s.encoder_hidden_size, s.codebook_dim)
        self.first = BookGroup(1, *sizes)
        self.rest = BookGroup(s.num_codebooks - 1, *sizes)
        self.first_phones = nn.Linear(s.vector_dim, PHONES_PER_FRAME * len(PHONES))
        self.head = _Head(s.codebook_dim, s.head_size)

    @property
    def kept_parts(self) -> tuple[nn.Module, ...]:
        """What a checkpoint has of this module, beside the books."""
        return self.encoder, self.encoder_transformer, self.downsample, self.first, self.rest

    def embed(self, samples: Tensor) -> Tensor:
        """samples [crops, n] -> [crops, hidden, frames]."""
        x, _ = self.encoder(samples[:, None])
        x = self.encoder_transformer(x.transpose(1, 2)).transpose(1, 2)
        out: Tensor = self.downsample(x)
        return out


class _Head(nn.Module):
    """Causal convolutions over frames: predict mels, phones and low spectrum of a frame's 80 ms from its vector."""

    def __init__(self, in_size: int, size: int) -> None:
        super().__init__()
        self.outputs = (
            PHONES_PER_FRAME * TARGET_MELS,
            PHONES_PER_FRAME * len(PHONES),
            LOW_STEPS_PER_FRAME * TARGET_LOW_BINS,
        )
        self.input = nn.Conv1d(in_size, size, 3)
        self.wide = nn.ModuleList(nn.Conv1d(size, size, 3) for _ in range(3))
        self.mix = nn.ModuleList(nn.Conv1d(size, size, 1) for _ in range(3))
        self.output = nn.Conv1d(size, sum(self.outputs), 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = F.gelu(self.input(F.pad(x, (2, 0))))
        for wide, mix in zip(self.wide, self.mix, strict=True):
            x = x + mix(F.gelu(wide(F.pad(x, (2, 0)))))
        mels, phones, low = self.output(x).transpose(1, 2).split(self.outputs, dim=2)
        by_step = mels.unflatten(2, (PHONES_PER_FRAME, -1)).flatten(1, 2)
        return (
            by_step,
            phones.unflatten(2, (PHONES_PER_FRAME, -1)).flatten(1, 2),
            low.unflatten(2, (2, -1)).flatten(1, 2),
        )


def initialize_encoder(model: QuantizedEncoder) -> None:
    """Draw wider weights than by default, so that activations keep their size; this saves about a hundred steps."""
    convs = [m for m in (*model.encoder.modules(), *model.downsample.modules()) if isinstance(m, nn.Conv1d)]
    for number, conv in enumerate(convs):
        std = 1.25 / math.sqrt(conv.in_channels * conv.kernel_size[0])
        nn.init.normal_(conv.weight, std=std * (10.0 if number == 0 else 1.0))  # speech is quiet: mean square 0.01
        if conv.bias is not None:
            nn.init.zeros_(conv.bias)


def train_stage1(
    model: QuantizedEncoder,
    pool: SpeechPool,
    settings: CodecSettings,
    poll: Callable[[], object],
    clock: Clock,
    *,
    ends_at_s: float,
    trained: bool,
) -> QuantizedEncoder:
    """Train until `ends_at_s`; continue from the clock's state file if there is one. `poll` is called between steps and
    may add speech to the pool. With `trained`, encoder and books have the weights of another run: they stay as they are
    while the heads, which no checkpoint has, learn to read them."""
    device = pool.device
    if not trained:
        initialize_encoder(model)
    model.requires_grad_(True).to(device).train()
    targets = SpectralTargets().to(device)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=settings.stage1_rate, betas=(0.9, 0.98), weight_decay=0.01, fused=device.type == "cuda"
    )
    if state := clock.resume():
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        logger.info("stage 1 goes on from step %d", clock.steps)

    clock.start(ends_at_s)

    def save() -> None:
        clock.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()})

    progress = tqdm(desc="codec stage 1", unit="step", mininterval=10, disable=None)
    while (done := clock.done) < 1:
        poll()
        for group in optimizer.param_groups:
            group["lr"] = settings.stage1_rate * _rate(done, clock.steps)
        num_frames, number = settings.stage1_crops[clock.steps % len(settings.stage1_crops)]
        samples, phones, _ = pool.crops(num_frames, number, at_starts=0.5)
        beginning = clock.steps < settings.steps_without_books
        if trained:
            for part in model.kept_parts:
                part.requires_grad_(not beginning)
        elif clock.steps == settings.steps_without_books:
            _start_books(model, pool, settings)
        decay = None if done > BOOKS_FROZEN_FROM or beginning else 0.98 if done < 0.6 else 0.99
        revive = clock.steps % REVIVE_EVERY_STEPS == 0 and done < REVIVE_UNTIL and not trained
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss, parts = _loss(model, targets, samples, phones, decay, revive, quantized=trained or not beginning)
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT_NORM)
        optimizer.step()
        clock.steps += 1
        progress.update()
        if clock.steps % LOG_EVERY_STEPS == 0:
            values = " ".join(f"{name}={value.item():.4g}" for name, value in parts.items())
            logger.info("step %d %s frames=%d", clock.steps, values, pool.num_frames)
        if clock.wants_save:
            save()
    save()
    logger.info("stage 1 ended after %d steps on %.1f h of speech", clock.steps, pool.num_frames * 0.08 / 3600)
    return model.eval()


def _loss(
    model: QuantizedEncoder,
    targets: SpectralTargets,
    samples: Tensor,
    phones: Tensor,
    decay: float | None,
    revive: bool,
    *,
    quantized: bool,
) -> tuple[Tensor, dict[str, Tensor]]:
    embedded = model.embed(samples)
    total, commitment, semantic = embedded.new_zeros(()), embedded.new_zeros(()), embedded
    for group in (model.first, model.rest):
        vectors = group.project(embedded)
        if quantized:
            vectors, lost = group.quantize(vectors, decay=decay, revive=revive)
            commitment = commitment + lost
        semantic = vectors if group is model.first else semantic
        total = total + group.output_proj(vectors.transpose(1, 2))
    mels, read_phones, low = model.head(total)
    wanted_mels, wanted_low = targets(samples)
    first_phones = model.first_phones(semantic).unflatten(2, (PHONES_PER_FRAME, -1))
    parts = {
        "mel": (mels.float() - wanted_mels).abs().mean(),
        "low": (low.float() - wanted_low).abs().mean(),
        "phones": F.cross_entropy(read_phones.float().flatten(0, 1), phones.flatten()),
        "first_phones": F.cross_entropy(first_phones.float().flatten(0, 2), phones.flatten()),
        "commitment": commitment,
    }
    weights = (MEL_WEIGHT, LOW_WEIGHT, PHONES_WEIGHT, FIRST_PHONES_WEIGHT, COMMITMENT_WEIGHT)
    return torch.stack([w * p.float() for w, p in zip(weights, parts.values(), strict=True)]).sum(), parts


@torch.no_grad()
def _start_books(model: QuantizedEncoder, pool: SpeechPool, settings: CodecSettings) -> None:
    embedded = [
        model.embed(pool.crops(num_frames, number, at_starts=0.5)[0]).transpose(1, 2).flatten(0, 1)
        for num_frames, number in settings.stage1_crops
        for _ in range(4)
    ]
    for group in (model.first, model.rest):
        group.start(group.project(torch.cat(embedded).T[None])[0])


def _rate(done: float, steps: int) -> float:
    return falling_rate(done, steps, warm_up_steps=WARM_UP_STEPS, full_until=FULL_RATE_UNTIL, last=LAST_RATE)
