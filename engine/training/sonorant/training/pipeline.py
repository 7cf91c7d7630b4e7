"""Runs the stages in order. Each has a limited time, and continues where it was stopped."""

import json
import logging
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Literal

import torch

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.training.codec.encode import encode_all
from sonorant.training.codec.export import write_codec_config
from sonorant.training.codec.train import CodecTraining, train_codec, train_decoder
from sonorant.training.evaluation.sentences import everyday_sentences, held_out_sentences
from sonorant.training.export import TOKENIZER_FILE, write_config
from sonorant.training.hearing.train import HearingTraining, train_hearing
from sonorant.training.plots import plot_talker
from sonorant.training.sentences import FILE_NAME, read_sentences
from sonorant.training.settings import TrainingSettings
from sonorant.training.speakers import draw, draw_mixture, given_voices, many_speakers
from sonorant.training.talker.train import train_talker
from sonorant.training.teacher import Classroom, speak_all
from sonorant.training.teachers.kokoro.fetch import fetch
from sonorant.training.teachers.kokoro.spellings import spell_all
from sonorant.training.text.corpus import write_corpus
from sonorant.training.text.vocabulary import grow_tokenizer, train_tokenizer

logger = logging.getLogger(__name__)

Stage = Literal["fetch", "text", "speech", "codec", "decoder", "codes", "talker", "hearing"]
# Without those that train further what another run has left: `decoder`, and `hearing` of a checkpoint that clones.
DEFAULT_STAGES: Sequence[Stage] = ("fetch", "text", "speech", "codec", "codes", "talker")
LOG_FORMAT = "%(asctime)s %(name)s %(message)s"
DRAWS = {"flite": draw, "kokoro": draw_mixture}  # how a speaker of a checkpoint that clones is drawn
TOKENIZER_TEXTS = 100_000  # of the list; with more, the 1024 tokens stay the same


@dataclass(frozen=True, slots=True)
class Run:
    folder: Path
    settings: TrainingSettings
    stages: Sequence[Stage]
    device: torch.device
    ends_at_s: float  # time.time() at which everything must be done
    teacher_processes: int
    codec_from: Path | None  # a checkpoint whose codec is used if the folder has none and none is trained
    weights_from: Path | None  # a checkpoint of the same sizes whose weights training begins with; None: random ones
    rate: float  # learning rates as a share of the settings'
    seed: int
    eager: bool  # neither compiled nor captured: slower, for debugging

    @property
    def teacher(self) -> Path:
        return self.folder / "teacher"

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

    @property
    def codec(self) -> Path:
        return self.checkpoint / "speech_tokenizer"


def run_stages(run: Run) -> None:
    settings = run.settings
    if "fetch" in run.stages and settings.teacher == "kokoro":
        fetch(run.teacher)
    if "text" in run.stages:
        write_text(run)
        if settings.teacher == "kokoro":
            spell_all(run.text, run.teacher, os.cpu_count() or 1)
    if set(run.stages) & {"codec", "decoder", "codes", "talker", "hearing"}:
        _write_configs(run)
    if set(run.stages) - {"fetch", "text"}:
        _with_teacher(run)


def _write_configs(run: Run) -> None:
    settings = run.settings
    if "codec" in run.stages:
        write_codec_config(run.codec, settings.codec)
    elif run.codec_from and not run.codec.exists():
        shutil.copytree(run.codec_from / "speech_tokenizer", run.codec, dirs_exist_ok=True)
    voices, languages = tuple(settings.voices), tuple(settings.languages)
    write_config(run.checkpoint, settings.talker, settings.speakers, voices, languages, run.text, run.codec)


def write_text(run: Run) -> None:
    if (run.text / FILE_NAME).exists() and (run.text / TOKENIZER_FILE).exists():
        logger.info("the sentence list exists already")
        return
    settings = run.settings
    held_out = held_out_sentences(settings.languages)
    write_corpus(
        run.text,
        num_sentences=settings.num_sentences,
        held_out=held_out[: settings.num_held_out],
        exclude=(*everyday_sentences(), *(text for _, _, text in held_out)),
        speakers=many_speakers(DRAWS[settings.teacher], settings.speakers.sentences_each, run.seed)
        if settings.speakers
        else given_voices(settings.num_held_out, settings.voices, run.seed),
        languages=settings.languages,
        seed=run.seed,
    )
    sentences, tokenizer = read_sentences(run.text)[:TOKENIZER_TEXTS], run.text / TOKENIZER_FILE
    if run.weights_from:
        spoken = load_checkpoint(run.weights_from).talker.language_ids
        new, same = ([s.text for s in sentences if (s.language in spoken) is known] for known in (False, True))
        grow_tokenizer(run.weights_from / TOKENIZER_FILE, settings.vocabulary, new, same, tokenizer)
    else:
        train_tokenizer([s.text for s in sentences], settings.vocabulary, tokenizer)


def _with_teacher(run: Run) -> None:
    """Run the stages that need speech or codes, each in a process of its own. Once there are codes, encoding and the
    talker's training run beside the decoder's. The talker's process starts at once, as it takes long to prepare."""
    spawn = get_context("spawn")
    stop, spoken = spawn.Event(), spawn.Event()
    classroom = Classroom(run.settings.teacher, tuple(run.settings.voices), run.teacher, run.text, run.device)
    shards = (run.audio, run.codes, run.settings.sentences_per_shard)
    teacher = spawn.Process(
        target=speak_all, args=(classroom, *shards, run.teacher_processes, spoken, stop), name="teacher"
    )
    references_each = run.settings.speakers.references_each if run.settings.speakers else 0
    encoder = spawn.Process(
        target=encode_all,
        args=(run.checkpoint, run.audio, run.codes, references_each, run.device, spoken, stop),
        name="encoder",
    )
    talker = spawn.Process(target=_train_talker, args=(run,), name="talker")
    started: list[SpawnProcess] = []

    def start(process: SpawnProcess) -> None:
        process.start()
        started.append(process)

    def start_encoder() -> None:
        if "codes" in run.stages:
            start(encoder)

    try:
        if "speech" in run.stages:
            start(teacher)
        else:
            spoken.set()
        if "talker" in run.stages:
            start(talker)
        if "codec" in run.stages:
            train_codec(_codec_training(run, started), start_encoder)
        else:
            start_encoder()
        if "decoder" in run.stages:
            train_decoder(_codec_training(run, started))
        if "hearing" in run.stages:
            train_hearing(_hearing_training(run, started))
        last = next((process for process in (talker, encoder, teacher) if process in started), talker)
        while last in started and last.exitcode is None and (last is talker or time.time() < run.ends_at_s):
            _check(started)
            last.join(timeout=1.0)
        _check(started)
    finally:
        stop.set()
        if talker in started:
            talker.terminate()  # it has finished, or another process has failed
        for process in started:
            process.join()
    _check([process for process in started if process is not talker])


def _codec_training(run: Run, processes: Sequence[SpawnProcess]) -> CodecTraining:
    return CodecTraining(
        checkpoint=run.checkpoint,
        settings=run.settings.codec,
        run_folder=run.folder,
        audio=run.audio,
        held_out=frozenset(range(run.settings.num_held_out)),
        device=run.device,
        watch=lambda: _check(processes),
        ends_at_s=run.ends_at_s,
        seed=run.seed,
        weights_from=run.weights_from,
        rate=run.rate,
        eager=run.eager,
    )


def _hearing_training(run: Run, processes: Sequence[SpawnProcess]) -> HearingTraining:
    assert run.settings.speakers is not None, "a checkpoint that does not clone has no references to be compared with"
    settings = run.settings.speakers.hearing
    return HearingTraining(
        checkpoint=run.checkpoint,
        settings=replace(settings, learning_rate=run.rate * settings.learning_rate),
        run_folder=run.folder,
        audio=run.audio,
        held_out=frozenset(range(run.settings.num_held_out)),
        device=run.device,
        watch=lambda: _check(processes),
        ends_at_s=run.ends_at_s,
        seed=run.seed,
        weights_from=run.weights_from,
    )


def _train_talker(run: Run) -> None:
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    history = train_talker(
        run.checkpoint,
        run.text,
        run.codes,
        replace(run.settings.talker, learning_rate=run.rate * run.settings.talker.learning_rate),
        run.device,
        ends_at_s=run.ends_at_s,
        weights_from=run.weights_from,
        seed=run.seed,
        eager=run.eager,
    )
    (run.folder / "talker-history.json").write_text(json.dumps(asdict(history)))
    plot_talker(history, run.folder / "talker.png")


def _check(processes: Sequence[SpawnProcess]) -> None:
    for process in processes:
        if process.exitcode:
            raise RuntimeError(
                f"the {process.name} process failed with exit status {process.exitcode}; its log says why"
            )
