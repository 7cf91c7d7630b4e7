"""Has the teacher speak every sentence of the list, in several processes, and writes numbered shards."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tqdm import tqdm

from sonorant.training.alignment import align
from sonorant.training.export import TOKENIZER_FILE
from sonorant.training.sentences import Sentence, read_sentences
from sonorant.training.settings import TeacherName
from sonorant.training.shards import SpokenSentence, audio_shard, shard_path
from sonorant.training.speakers import Speaker
from sonorant.training.teachers.flite import Flite
from sonorant.training.teachers.kokoro.spellings import read_spellings
from sonorant.training.teachers.kokoro.teacher import Kokoro
from sonorant.training.teachers.kokoro.voices import in_language
from sonorant.training.teachers.speech import Speech, Teacher

MAX_FRAMES = 760  # 61 s


@dataclass(frozen=True, slots=True)
class Classroom:
    """What a teacher's process needs."""

    teacher: TeacherName
    voices: Sequence[str]  # of the checkpoint; other speakers are numbered by their first row
    teacher_folder: Path  # what the stage `fetch` got; flite needs nothing of it
    text_folder: Path
    device: torch.device

    def open(self, sentences: Sequence[Sentence], number: int) -> Teacher:
        """Load the teacher of the process `number`. Processes take the GPUs in turns."""
        if self.teacher == "flite":
            return Flite()
        device = self.device
        if device.type == "cuda":
            device = torch.device("cuda", number % torch.cuda.device_count())
        return Kokoro(self.teacher_folder, read_spellings(self.text_folder, sentences), device)


_worker: "tuple[Teacher, Tokenizer, Classroom] | None" = None


def speak_all(
    classroom: Classroom,
    audio_folder: Path,
    codes_folder: Path,
    shard_size: int,
    num_processes: int,
    spoken: Event,
    stop: Event,
) -> None:
    """Speak all shards that are neither spoken nor encoded yet. Sets `spoken` at the end; `stop` ends it early."""
    sentences = read_sentences(classroom.text_folder)
    jobs = [
        (sentences[first : first + shard_size], shard_path(audio_folder, number))
        for number, first in enumerate(range(0, len(sentences), shard_size))
        if not (shard_path(audio_folder, number).exists() or shard_path(codes_folder, number).exists())
    ]
    spawn = get_context("spawn")
    numbers: SimpleQueue[int] = spawn.SimpleQueue()
    for number in range(num_processes):
        numbers.put(number)
    with spawn.Pool(num_processes, _start_worker, (classroom, sentences, numbers)) as pool:
        done = pool.imap_unordered(_speak_shard, jobs)
        for _ in tqdm(done, total=len(jobs), desc="teacher", unit="shard", mininterval=10, disable=None):
            if stop.is_set():
                break  # leaving the pool ends its processes
    spoken.set()


def _start_worker(classroom: Classroom, sentences: Sequence[Sentence], numbers: "SimpleQueue[int]") -> None:
    global _worker
    os.nice(5)
    torch.set_num_threads(1)
    tokenizer = Tokenizer.from_file(str(classroom.text_folder / TOKENIZER_FILE))
    _worker = classroom.open(sentences, numbers.get()), tokenizer, classroom


def _speak_shard(job: tuple[Sequence[Sentence], Path]) -> None:
    assert _worker is not None
    teacher, tokenizer, classroom = _worker
    sentences, path = job
    first_rows: dict[str, int] = {}
    for sentence in sentences:
        first_rows.setdefault(sentence.voice, sentence.row)
    numbers = {**first_rows, **{voice: number for number, voice in enumerate(classroom.voices)}}
    speeches = teacher.speak([s.text for s in sentences], [in_language(s.voice, s.language) for s in sentences])
    spoken = [_aligned(s, numbers[s.voice], speech, tokenizer) for s, speech in zip(sentences, speeches, strict=True)]
    audio_shard([s for s in spoken if s is not None]).save(path)


def _aligned(sentence: Sentence, voice: int, speech: Speech | None, tokenizer: Tokenizer) -> SpokenSentence | None:
    """Return the spoken sentence; None if it was not spoken, or if it is too short or too long for training."""
    encoding = tokenizer.encode(sentence.text, add_special_tokens=False)
    aligned = align(speech, encoding.offsets) if speech else None
    if aligned is None or aligned.num_frames > MAX_FRAMES:
        return None
    return SpokenSentence(sentence.row, sentence.language, voice, Speaker.parse(sentence.voice), encoding.ids, aligned)
