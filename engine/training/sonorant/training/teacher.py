"""Has flite, the teacher, speak every sentence of the list, in several processes, and writes numbered shards."""

import os
from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from pathlib import Path

from tokenizers import Tokenizer
from tqdm import tqdm

from sonorant.training.alignment import align
from sonorant.training.flite import VOICES, Flite
from sonorant.training.sentences import Sentence, read_sentences
from sonorant.training.shards import SpokenSentence, audio_shard, shard_path
from sonorant.training.speakers import Speaker

MAX_FRAMES = 300  # 24 s; longer speech does not fit into a training row
_worker: "tuple[Flite, Tokenizer] | None" = None


def speak_all(
    text_folder: Path,
    audio_folder: Path,
    codes_folder: Path,
    shard_size: int,
    num_processes: int,
    spoken: Event,
    stop: Event,
) -> None:
    """Speak all shards that are neither spoken nor encoded yet. Sets `spoken` at the end; `stop` ends it early."""
    sentences = read_sentences(text_folder)
    jobs = [
        (sentences[first : first + shard_size], shard_path(audio_folder, number))
        for number, first in enumerate(range(0, len(sentences), shard_size))
        if not (shard_path(audio_folder, number).exists() or shard_path(codes_folder, number).exists())
    ]
    spawn = get_context("spawn")
    with spawn.Pool(num_processes, _start_worker, (text_folder / "tokenizer.json",)) as pool:
        done = pool.imap(_speak_shard, jobs)
        for _ in tqdm(done, total=len(jobs), desc="teacher", unit="shard", mininterval=10, disable=None):
            if stop.is_set():
                break  # leaving the pool ends its processes
    spoken.set()


def _start_worker(tokenizer_file: Path) -> None:
    global _worker
    os.nice(5)
    _worker = Flite(), Tokenizer.from_file(str(tokenizer_file))


def _speak_shard(job: tuple[Sequence[Sentence], Path]) -> None:
    sentences, path = job
    first_rows: dict[str, int] = {}
    for sentence in sentences:
        first_rows.setdefault(sentence.voice, sentence.row)
    spoken = [speak(s, VOICES.index(s.voice) if s.voice in VOICES else first_rows[s.voice]) for s in sentences]
    audio_shard([s for s in spoken if s is not None]).save(path)


def speak(sentence: Sentence, voice: int) -> SpokenSentence | None:
    """Return the spoken sentence; None if flite cannot speak it, or if it is too short or too long for training."""
    assert _worker is not None
    flite, tokenizer = _worker
    speech = flite.speak(sentence.text, sentence.voice)
    encoding = tokenizer.encode(sentence.text, add_special_tokens=False)
    aligned = align(speech, sentence.text, encoding.offsets) if speech else None
    if aligned is None or aligned.num_frames > MAX_FRAMES:
        return None
    return SpokenSentence(sentence.row, voice, Speaker.parse(sentence.voice), encoding.ids, aligned)
