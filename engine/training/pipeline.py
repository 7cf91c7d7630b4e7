"""The stages in their order, each by the clock and each able to take up where it was stopped."""

import json
import logging
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Literal

import torch

from engine.training.codec.encode import encode_all
from engine.training.evaluation.everyday import everyday_sentences
from engine.training.export import write_config
from engine.training.plots import plot_talker
from engine.training.sentences import FILE_NAME, read_sentences
from engine.training.settings import TrainingSettings
from engine.training.talker.train import train_talker
from engine.training.teacher import speak_all
from engine.training.text.corpus import normalized, write_corpus
from engine.training.text.vocabulary import train_tokenizer

logger = logging.getLogger(__name__)

Stage = Literal["text", "talker"]
TOKENIZER_TEXTS = 100_000  # of the list; more do not change 1024 tokens


@dataclass(frozen=True, slots=True)
class Run:
    folder: Path
    settings: TrainingSettings
    stages: Sequence[Stage]
    device: torch.device
    ends_at_s: float  # time.time() at which everything must be done
    teacher_processes: int
    codec_from: Path | None  # a checkpoint whose codec is taken instead of training one
    seed: int
    eager: bool  # neither compiled nor captured: slower, for finding faults

    @property
    def text(self) -> Path:
        return self.folder / "text"

    @property
    def audio(self) -> Path:
        return self.folder / "audio"

    @property
    def codes(self) -> Path:
        return self.folder / "codes"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"


def run_stages(run: Run) -> None:
    if "text" in run.stages:
        write_text(run)
    if "talker" not in run.stages:
        return
    run.checkpoint.mkdir(parents=True, exist_ok=True)
    if run.codec_from:
        shutil.copytree(run.codec_from / "speech_tokenizer", run.checkpoint / "speech_tokenizer", dirs_exist_ok=True)
    write_config(run.checkpoint, run.settings.talker, run.text, run.checkpoint / "speech_tokenizer")
    spawn = get_context("spawn")
    stop, spoken = spawn.Event(), spawn.Event()
    teacher = spawn.Process(
        target=speak_all, args=(run.text, run.audio, run.codes, run.teacher_processes, spoken, stop), name="teacher"
    )
    encoder = spawn.Process(
        target=encode_all, args=(run.checkpoint, run.audio, run.codes, run.device, spoken, stop), name="encoder"
    )
    for process in (teacher, encoder):
        process.start()
    try:
        history = train_talker(
            run.checkpoint,
            run.text,
            run.codes,
            run.settings.talker,
            run.device,
            ends_at_s=run.ends_at_s,
            seed=run.seed,
            eager=run.eager,
        )
    finally:
        stop.set()
        for process in (teacher, encoder):
            process.join()
    _check(teacher, encoder)
    (run.folder / "talker-history.json").write_text(json.dumps(asdict(history)))
    plot_talker(history, run.folder / "talker.png")


def write_text(run: Run) -> None:
    if (run.text / FILE_NAME).exists() and (run.text / "tokenizer.json").exists():
        logger.info("the sentence list is there already")
        return
    exclude = frozenset(map(normalized, everyday_sentences()))
    settings = run.settings
    write_corpus(
        run.text,
        num_sentences=settings.num_sentences,
        num_held_out=settings.num_held_out,
        seed=run.seed,
        exclude=exclude,
    )
    texts = [s.text for s in read_sentences(run.text)[:TOKENIZER_TEXTS]]
    train_tokenizer(texts, settings.vocabulary, run.text / "tokenizer.json")


def _check(*processes: SpawnProcess) -> None:
    for process in processes:
        if process.exitcode:
            raise RuntimeError(
                f"the {process.name} process failed with exit status {process.exitcode}; its log says why"
            )
