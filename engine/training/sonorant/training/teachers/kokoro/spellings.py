"""The file of spellings: one line of JSON for each sentence of the list, made ahead because spelling is slow."""

import gzip
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path

from tqdm import tqdm

from sonorant.training.sentences import Sentence, read_sentences
from sonorant.training.teachers.kokoro.modules import read_vocabulary
from sonorant.training.teachers.kokoro.phonemes import Spelling, Word
from sonorant.training.teachers.kokoro.phonemizer import Phonemizer

FILE_NAME = "spellings.jsonl.gz"
_phonemizer: Phonemizer | None = None


def spell_all(text_folder: Path, teacher_folder: Path, num_processes: int) -> None:
    """Spell the whole list. A file that a stopped run left is continued."""
    done, path = text_folder / FILE_NAME, text_folder / f"{FILE_NAME}.part"
    if done.exists():
        return
    sentences = read_sentences(text_folder)
    kept = list(_whole_lines(path)) if path.exists() else []
    spawn = get_context("spawn")
    with (
        gzip.open(path, "wt", encoding="utf-8", compresslevel=6) as file,
        spawn.Pool(num_processes, _start, (teacher_folder,)) as pool,
    ):
        file.writelines(kept)
        spelled = pool.imap(_spell, sentences[len(kept) :], chunksize=64)
        for line in tqdm(spelled, total=len(sentences) - len(kept), desc="spelling", mininterval=10, disable=None):
            file.write(line)
    os.replace(path, done)


def read_spellings(text_folder: Path, sentences: Sequence[Sentence]) -> Mapping[str, Spelling]:
    """The spellings of these sentences by their texts, without those that cannot be spelled."""
    wanted = {sentence.row: sentence.text for sentence in sentences}
    with gzip.open(text_folder / FILE_NAME, "rt", encoding="utf-8") as file:
        lines = ((row, json.loads(line)) for row, line in enumerate(file) if row in wanted)
        return {wanted[row]: tuple(Word(*word) for word in words) for row, words in lines if words}


def _start(teacher_folder: Path) -> None:
    global _phonemizer
    os.nice(5)
    _phonemizer = Phonemizer(read_vocabulary(teacher_folder))


def _spell(sentence: Sentence) -> str:
    assert _phonemizer is not None
    spelling = _phonemizer.spell(sentence.text, sentence.language) or ()
    return json.dumps([[word.begin, word.end, word.phones] for word in spelling], ensure_ascii=False) + "\n"


def _whole_lines(path: Path) -> Iterator[str]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        try:
            for line in file:
                if line.endswith("\n"):
                    yield line
        except EOFError:  # it was not closed
            return
