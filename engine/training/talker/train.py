"""Stage `talker`: trains until the clock says stop, on shards that may still be appearing."""

import logging
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from engine.checkpoint import load_checkpoint
from engine.training.export import write_talker
from engine.training.sentences import read_sentences
from engine.training.settings import TalkerSettings
from engine.training.shards import Shard, shard_path
from engine.training.talker.packing import Batch, Sampler, pack, piece_of
from engine.training.talker.rows import LAYOUTS, RowStore
from engine.training.talker.trainer import GUIDE_WEIGHT_END, GUIDE_WEIGHT_START, Trainer

logger = logging.getLogger(__name__)

RESUME_FILE = "talker-resume.pt"
LOG_EVERY_STEPS = 100
POLL_EVERY_STEPS = 20
WARM_UP_STEPS = 300
FULL_RATE_UNTIL = 0.2  # of the time; a cosine from there
LAST_RATE = 0.01


@dataclass(slots=True)
class History:
    """What the plots show; lists of equal length within a group."""

    steps: list[dict[str, float]] = field(default_factory=list)
    evaluations: list[dict[str, float]] = field(default_factory=list)


def train_talker(
    checkpoint_folder: Path,
    text_folder: Path,
    codes_folder: Path,
    settings: TalkerSettings,
    device: torch.device,
    *,
    ends_at_s: float,
    seed: int,
    eager: bool,
) -> History:
    """Writes the averaged weights into `checkpoint_folder` from time to time and at `ends_at_s` (of time.time())."""
    checkpoint = load_checkpoint(checkpoint_folder)
    store = RowStore(checkpoint, checkpoint_folder, device, settings.max_rows, settings.max_frames)
    feed = _Feed(store, codes_folder, frozenset(s.row for s in read_sentences(text_folder) if s.held_out))
    feed.wait_for(settings.min_shards, ends_at_s)
    trainer = Trainer(checkpoint, store, settings.trainer, device, seed, eager=eager)
    size = (settings.trainer.num_rows, settings.trainer.length)
    sampler = Sampler(store, *size, settings.whole_text_share, seed)
    held_out = [_held_out_batch(store, layout, *size) for layout in range(len(LAYOUTS))]
    clock = _Clock(checkpoint_folder.parent / RESUME_FILE, trainer, ends_at_s)
    history = History()
    parameters = sum(p.numel() for p in trainer.model.talker.parameters())
    logger.info("talker of %.2f M parameters; %d sentences so far", parameters / 1e6, len(store.training))
    progress = tqdm(desc="talker", unit="step", mininterval=10, disable=None)
    trainer.set_schedule(settings.learning_rate / WARM_UP_STEPS, GUIDE_WEIGHT_START)
    trainer.prepare(sampler.batch())
    evaluated_s, batch = time.time(), sampler.batch()
    while (done := clock.done) < 1:
        trainer.set_schedule(
            settings.learning_rate * _rate(done, clock.steps),
            GUIDE_WEIGHT_START + (GUIDE_WEIGHT_END - GUIDE_WEIGHT_START) * done,
        )
        trainer.step(batch, own_history=done >= settings.own_history_from)
        batch = sampler.batch()  # while the device works
        clock.steps += 1
        progress.update()
        if clock.steps % POLL_EVERY_STEPS == 0:
            feed.poll(2)
        if clock.steps % LOG_EVERY_STEPS == 0:
            history.steps.append(_step_values(trainer, clock, store, done))
            logger.info(" ".join(f"{name}={value:.4g}" for name, value in history.steps[-1].items()))
        if time.time() - evaluated_s > settings.evaluate_every_s:
            evaluated_s = time.time()
            history.evaluations.append({"step": clock.steps, **_evaluate(trainer, held_out)})
            logger.info("held out: %s", " ".join(f"{n}={v:.4g}" for n, v in history.evaluations[-1].items()))
            clock.save(trainer)
            write_talker(checkpoint_folder, trainer.averaged_talker())
        if device.type == "cuda":
            torch.cuda.synchronize()
    history.evaluations.append({"step": clock.steps, **_evaluate(trainer, held_out)})
    logger.info("done; held out: %s", " ".join(f"{n}={v:.4g}" for n, v in history.evaluations[-1].items()))
    write_talker(checkpoint_folder, trainer.averaged_talker())
    clock.save(trainer)
    return history


class _Feed:
    """Shards in the order of their numbers, each as soon as it is there."""

    def __init__(self, store: RowStore, folder: Path, held_out: frozenset[int]) -> None:
        self._store, self._folder, self._held_out = store, folder, held_out
        self._waiting: list[int] = []
        self._next = 0

    def poll(self, max_shards: int) -> int:
        """Takes up to `max_shards` new ones; a shard that is late does not hold up those after it."""
        taken = 0
        for number in (*self._waiting, *range(self._next, self._next + 64)):
            path = shard_path(self._folder, number)
            if taken == max_shards or self._store.full:
                break
            if not path.exists():
                continue
            self._store.append(Shard.load(path), self._held_out)
            taken += 1
            if number in self._waiting:
                self._waiting.remove(number)
            else:
                self._waiting += range(self._next, number)
                self._next = number + 1
        return taken

    def wait_for(self, num_shards: int, ends_at_s: float) -> None:
        taken = 0
        while taken < num_shards:
            new = self.poll(num_shards - taken)
            taken += new
            if new == 0:
                if time.time() > ends_at_s:
                    raise TimeoutError(f"only {taken} of {num_shards} shards in {self._folder} when the time was up")
                time.sleep(0.2)


class _Clock:
    """How far training has come: a part of its time, which a resumed run takes up where the last one left off."""

    def __init__(self, path: Path, trainer: Trainer, ends_at_s: float) -> None:
        self._path = path
        self._begin, self._begun_s, self._ends_at_s = 0.0, time.time(), ends_at_s
        self.steps = 0
        if path.exists():
            state = torch.load(path, map_location="cpu", weights_only=True)
            trainer.load_state(state["trainer"])
            self.steps, self._begin = state["steps"], state["done"]
            logger.info("resumed at step %d", self.steps)

    @property
    def done(self) -> float:
        """0 .. 1"""
        passed = (time.time() - self._begun_s) / max(self._ends_at_s - self._begun_s, 1e-3)
        return min(1.0, self._begin + (1 - self._begin) * passed)

    @property
    def elapsed_s(self) -> float:
        return time.time() - self._begun_s

    def save(self, trainer: Trainer) -> None:
        unfinished = self._path.with_suffix(".tmp")
        torch.save({"trainer": dict(trainer.state()), "steps": self.steps, "done": self.done}, unfinished)
        os.replace(unfinished, self._path)


def _rate(done: float, steps: int) -> float:
    warm = min(1.0, (steps + 1) / WARM_UP_STEPS)
    if done < FULL_RATE_UNTIL:
        return warm
    cosine = 0.5 * (1 + math.cos(math.pi * (done - FULL_RATE_UNTIL) / (1 - FULL_RATE_UNTIL)))
    return warm * (LAST_RATE + (1 - LAST_RATE) * cosine)


def _step_values(trainer: Trainer, clock: _Clock, store: RowStore, done: float) -> dict[str, float]:
    names = ("first", "predictor", "guide", "phones", "gradient_norm")
    values = dict(zip(names, trainer.values.tolist(), strict=True))
    return {
        "step": clock.steps,
        "done": done,
        **values,
        "steps_per_s": clock.steps / clock.elapsed_s,
        "sentences": len(store.training),
    }


def _held_out_batch(store: RowStore, layout: int, num_rows: int, length: int) -> Batch:
    pieces = [piece_of(store, sentence, layout, "english") for sentence in store.held_out]
    placed: list[list[Any]] = [[]]
    for piece in sorted(pieces, key=lambda p: p.length, reverse=True):
        row = next((r for r in placed if sum(p.length for p in r) + piece.length <= length), None)
        if row is not None:
            row.append(piece)
        elif len(placed) < num_rows:
            placed.append([piece])
    return pack([*placed, *([] for _ in range(num_rows - len(placed)))], length)


def _evaluate(trainer: Trainer, batches: list[Batch]) -> Mapping[str, float]:
    result = {}
    for layout, batch in zip(LAYOUTS, batches, strict=True):
        losses = trainer.evaluate(batch)
        name = layout.__name__.removesuffix("_tail")
        frames = max(1, int(losses.num_frames))
        result[f"{name}_first"] = float(losses.first)
        result[f"{name}_predictor"] = float(losses.predictor)
        result[f"{name}_hits_0"] = int(losses.first_hits.sum()) / frames
        for book, hits in enumerate(losses.predictor_hits.sum(0).tolist()):
            result[f"{name}_hits_{book + 1}"] = hits / frames
    return result
