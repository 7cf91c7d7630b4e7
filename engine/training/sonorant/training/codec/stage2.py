"""Codec stage 2: trains the waveform decoder, on fixed codes; first by spectra, later by discriminators as well."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from torch import nn
from tqdm import tqdm

from sonorant.engine.model.codec.code2wav import Code2Wav
from sonorant.training.clock import Clock, falling_rate
from sonorant.training.codec.pool import SpeechPool
from sonorant.training.codec.settings import CodecSettings
from sonorant.training.codec.stage1 import QuantizedEncoder
from sonorant.training.codec.stage2_step import DecoderTrainer, TrainedDecoder

logger = logging.getLogger(__name__)

JUDGES_RAMP = 0.05  # of the time
LAST_RATE = 0.02
WARM_UP_STEPS = 100
LOG_EVERY_STEPS = 200


@dataclass(frozen=True, slots=True)
class Course:
    """When a decoder learns from what, in shares of the time."""

    judges_from: float = 0.15  # before, spectra alone
    latent_loss_until: float = 0.6  # predicting phones and mels from the latents helps at the beginning
    full_rate_until: float = 0.5


NEW_DECODER = Course()
# One that was trained before: no new head shall disturb it, and spectra have taught it most of what they can, unless it
# has just lost channels.
TRAINED_DECODER = Course(judges_from=0.02, latent_loss_until=0.0, full_rate_until=0.5)


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
    course: Course,
    eager: bool,
) -> TrainedDecoder:
    """Train `code2wav`, given on the CPU with its initial weights, until `ends_at_s`; return the averaged decoder.

    `export` is called with the averaged decoder from time to time, `poll` between steps. Continues from the clock's
    state file if there is one. `eager`: without CUDA graphs.
    """
    trainer = DecoderTrainer(code2wav, books, settings, pool.device, eager=eager)
    if state := clock.resume():
        trainer.load_state(state)
        logger.info("stage 2 goes on from step %d", clock.steps)
    clock.start(ends_at_s)
    progress = tqdm(desc="codec stage 2", unit="step", mininterval=10, disable=None)
    while (done := clock.done) < 1:
        poll()
        ramp = min(1.0, (done - course.judges_from) / JUDGES_RAMP + 0.1)
        parts = trainer.step(
            pool.crops(*settings.stage2_crop, at_starts=0.25),
            falling_rate(
                done, clock.steps, warm_up_steps=WARM_UP_STEPS, full_until=course.full_rate_until, last=LAST_RATE
            ),
            ramp if done > course.judges_from else None,
            clock.steps,
            reads_latents=done < course.latent_loss_until,
        )
        clock.steps += 1
        progress.update()
        if clock.steps % LOG_EVERY_STEPS == 0:
            values = " ".join(f"{name}={value.item():.4g}" for name, value in parts.items())
            logger.info("step %d %s frames=%d", clock.steps, values, pool.num_frames)
        if clock.wants_save:
            clock.save(trainer.state())
            export(trainer.average)
    clock.save(trainer.state())
    logger.info("stage 2 ended after %d steps", clock.steps)
    return trainer.average.eval()
