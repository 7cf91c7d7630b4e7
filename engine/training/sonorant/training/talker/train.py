"""Stage `talker`: trains until its time is up, on shards that may still be appearing."""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor
from tqdm import tqdm

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.training.clock import Clock, falling_rate
from sonorant.training.export import TOKENIZER_FILE, write_talker
from sonorant.training.sentences import read_sentences
from sonorant.training.settings import TalkerSettings
from sonorant.training.shards import Shard, shard_path
from sonorant.training.talker.packing import Batch, BatchShape, Piece, Sampler, pack, piece_of
from sonorant.training.talker.rows import LAYOUTS, RowStore
from sonorant.training.talker.trainer import GUIDE_WEIGHT_END, GUIDE_WEIGHT_START, VALUES, Trainer
from sonorant.training.text.vocabulary import rows_of_new_tokens

logger = logging.getLogger(__name__)

TEXT_ROWS = "talker.model.text_embedding.weight"
RESUME_FILE = "talker-resume.pt"
LOG_EVERY_STEPS = 100
POLL_EVERY_STEPS = 20
WARM_UP_STEPS = 300
FULL_RATE_UNTIL = 0.2  # of the time; then the rate falls as a cosine
LAST_RATE = 0.01


@dataclass(slots=True)
class History:
    """The values over time that the plots show, in the order of the steps."""

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
    weights_from: Path | None,
    seed: int,
    eager: bool,
) -> History:
    """Train, from the weights of the checkpoint `weights_from` if there is one; write the averaged weights to
    `checkpoint_folder` regularly and at `ends_at_s` (of time.time())."""
    checkpoint = load_checkpoint(checkpoint_folder)
    store = RowStore(checkpoint, checkpoint_folder, device, settings.store)
    feed = _Feed(store, codes_folder, frozenset(s.row for s in read_sentences(text_folder) if s.held_out))
    trainer = Trainer(checkpoint, store, settings.trainer, device, seed, eager=eager)
    if weights_from:
        trainer.load_talker(
            _with_new_tokens(load_file(weights_from / "model.safetensors"), weights_from, checkpoint_folder)
        )
        if settings.held_languages:
            trainer.hold(settings.held_languages)
    clock = Clock(checkpoint_folder.parent / RESUME_FILE, settings.max_steps)
    if state := clock.resume():
        trainer.load_state(state)
        logger.info("the talker goes on from step %d", clock.steps)
    trainer.set_schedule(settings.learning_rate / WARM_UP_STEPS, GUIDE_WEIGHT_START)
    trainer.prepare()
    feed.wait_for(settings.min_shards, ends_at_s)
    clock.start(ends_at_s)
    shape = settings.trainer.shape
    sampler = Sampler(store, shape, settings.mix, seed)
    held_out = [_held_out_batch(store, layout, shape) for layout in range(len(LAYOUTS))]
    history = History()
    parameters = sum(p.numel() for p in trainer.model.talker.parameters())
    logger.info("talker of %.2f M parameters; %d sentences so far", parameters / 1e6, len(store.training))
    progress = tqdm(desc="talker", unit="step", mininterval=10, disable=None)
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
        if clock.steps % LOG_EVERY_STEPS == 0 or clock.done == 1:
            history.steps.append(_step_values(trainer, clock, store, done))
            logger.info(" ".join(f"{name}={value:.4g}" for name, value in history.steps[-1].items()))
        if time.time() - evaluated_s > settings.evaluate_every_s:
            evaluated_s = time.time()
            history.evaluations.append({"step": clock.steps, **_evaluate(trainer, held_out)})
            logger.info("held out: %s", " ".join(f"{n}={v:.4g}" for n, v in history.evaluations[-1].items()))
            clock.save(trainer.state())
            write_talker(checkpoint_folder, trainer.averaged_talker())
        if device.type == "cuda":
            torch.cuda.synchronize()
    history.evaluations.append({"step": clock.steps, **_evaluate(trainer, held_out)})
    logger.info("done; held out: %s", " ".join(f"{n}={v:.4g}" for n, v in history.evaluations[-1].items()))
    write_talker(checkpoint_folder, trainer.averaged_talker())
    clock.save(trainer.state())
    return history


def _with_new_tokens(tensors: Mapping[str, Tensor], old: Path, new: Path) -> Mapping[str, Tensor]:
    rows = rows_of_new_tokens(tensors[TEXT_ROWS], old / TOKENIZER_FILE, new / TOKENIZER_FILE)
    return {**tensors, TEXT_ROWS: rows}


class _Feed:
    """Loads shards in the order of their numbers, as soon as they are there."""

    def __init__(self, store: RowStore, folder: Path, held_out: frozenset[int]) -> None:
        self._store, self._folder, self._held_out = store, folder, held_out
        self._waiting: list[int] = []
        self._next = 0

    def poll(self, max_shards: int) -> int:
        """Load up to `max_shards` new shards; return how many. A late shard does not hold up those after it."""
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
        while taken < num_shards or not self._store.training:  # the first sentences may all be held out
            new = self.poll(max(1, num_shards - taken))
            taken += new
            if new == 0:
                if time.time() > ends_at_s:
                    raise TimeoutError(
                        f"{taken} shards were in {self._folder} when the time was up, with {len(self._store.training)} "
                        f"sentences to train on; training needs {num_shards} shards to start"
                    )
                time.sleep(0.2)


def _rate(done: float, steps: int) -> float:
    return falling_rate(done, steps, warm_up_steps=WARM_UP_STEPS, full_until=FULL_RATE_UNTIL, last=LAST_RATE)


def _step_values(trainer: Trainer, clock: Clock, store: RowStore, done: float) -> dict[str, float]:
    values = dict(zip(VALUES, trainer.values.tolist(), strict=True))
    return {
        "step": clock.steps,
        "done": done,
        **values,
        "steps_per_s": clock.steps / clock.elapsed_s,
        "sentences": len(store.training),
    }


def _held_out_batch(store: RowStore, layout: int, shape: BatchShape) -> Batch:
    references: dict[int, int] = {}
    placed: list[list[Piece]] = [[]]
    pieces = [piece_of(store, sentence, layout, sentence.language) for sentence in store.held_out]
    for piece in sorted(pieces, key=lambda p: p.length, reverse=True):
        if shape.num_references and piece.speaker not in references:
            if len(references) == shape.num_references or piece.speaker not in store.references:
                continue
            references[piece.speaker] = store.references[piece.speaker][0]
        if references.get(piece.speaker) == piece.mels:
            continue  # the voice is to come from a recording of another text
        row = next((r for r in placed if sum(p.length for p in r) + piece.length <= shape.length), None)
        if row is not None:
            row.append(piece)
        elif len(placed) < shape.num_rows:
            placed.append([piece])
    return pack(placed, shape, references)


def _evaluate(trainer: Trainer, batches: list[Batch]) -> Mapping[str, float]:
    result = {}
    for layout, batch in zip(LAYOUTS, batches, strict=True):
        losses = trainer.evaluate(batch)
        name = layout.__name__.removesuffix("_tail")
        frames = max(1, int(losses.num_frames))
        if losses.traits > 0:
            result[f"{name}_traits"] = float(losses.traits)
        result[f"{name}_first"] = float(losses.first)
        result[f"{name}_predictor"] = float(losses.predictor)
        result[f"{name}_hits_0"] = int(losses.first_hits.sum()) / frames
        for book, hits in enumerate(losses.predictor_hits.sum(0).tolist()):
            result[f"{name}_hits_{book + 1}"] = hits / frames
    return result
