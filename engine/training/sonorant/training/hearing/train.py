"""Stage `hearing`: trains talker and speaker encoder until its time is up. References may still be appearing."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from sonorant.training.clock import Clock, falling_rate
from sonorant.training.export import write_talker
from sonorant.training.hearing.pool import ReferencePool
from sonorant.training.hearing.settings import HearingSettings
from sonorant.training.hearing.trainer import HearingTrainer
from sonorant.training.languages import AUTO

logger = logging.getLogger(__name__)

STATE_FILE = "hearing.pt"
AUTO_LANGUAGE = 0.7  # share of the steps
LOG_EVERY_STEPS = 10
WARM_UP_STEPS = 20
FULL_RATE_UNTIL = 0.6  # of the time
LAST_RATE = 0.05


@dataclass(frozen=True, slots=True)
class HearingTraining:
    checkpoint: Path
    settings: HearingSettings
    run_folder: Path  # has the state to resume from
    audio: Path
    held_out: frozenset[int]
    device: torch.device
    watch: Callable[[], None]  # called between steps; may raise
    ends_at_s: float  # time.time()
    seed: int
    weights_from: Path | None  # a checkpoint whose weights training begins with; None: those in `checkpoint`

    def first_references(self) -> ReferencePool:
        """Wait until there are references enough. Raises TimeoutError after `ends_at_s`."""
        pool = ReferencePool(self.device, self.settings, self.held_out)
        while not pool.is_enough:
            self.watch()
            if not pool.poll(self.audio):
                if time.time() > self.ends_at_s:
                    raise TimeoutError(f"{self.audio} had too few references when the time was up")
                time.sleep(0.2)
        return pool


def train_hearing(training: HearingTraining) -> None:
    """Train; write the averaged weights to the checkpoint regularly and at the end."""
    torch.manual_seed(training.seed)
    rng, settings = np.random.default_rng(training.seed), training.settings
    weights = (training.weights_from or training.checkpoint) / "model.safetensors"
    trainer = HearingTrainer(training.checkpoint, weights, settings, training.device)
    clock = Clock(training.run_folder / STATE_FILE, settings.max_steps)
    if state := clock.resume():
        trainer.load_state(state)
        logger.info("the training on what is heard goes on from step %d", clock.steps)
    pool = training.first_references()
    clock.start(training.ends_at_s)
    held_out = pool.held_out.first(settings.num_voices)
    logger.info("held out, before: %s", _listed(trainer.evaluate(held_out)))
    progress = tqdm(desc="hearing", unit="step", mininterval=10, disable=None)
    evaluated_s = time.time()
    while (done := clock.done) < 1:
        training.watch()
        pool.poll(training.audio)
        language = AUTO if rng.random() < AUTO_LANGUAGE else "english"
        share = falling_rate(done, clock.steps, warm_up_steps=WARM_UP_STEPS, full_until=FULL_RATE_UNTIL, last=LAST_RATE)
        task = pool.training.draw(settings.num_voices, rng)
        values = trainer.step(task, language, share * settings.learning_rate, clock.steps)
        clock.steps += 1
        progress.update()
        if clock.steps % LOG_EVERY_STEPS == 0:
            logger.info("step %d references=%d %s", clock.steps, len(pool.training), _listed(values))
        if time.time() - evaluated_s > settings.evaluate_every_s:
            evaluated_s = time.time()
            logger.info("held out, step %d: %s", clock.steps, _listed(trainer.evaluate(held_out)))
            clock.save(trainer.state())
            write_talker(training.checkpoint, trainer.average)
    logger.info("done, step %d; held out: %s", clock.steps, _listed(trainer.evaluate(held_out)))
    write_talker(training.checkpoint, trainer.average)
    clock.save(trainer.state())


def _listed(values: Mapping[str, float]) -> str:
    return " ".join(f"{name}={value:.4g}" for name, value in values.items())
