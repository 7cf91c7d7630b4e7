"""The file of the sentence list: one line per sentence, with its voice and kind. The first lines are held out."""

import gzip
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

FILE_NAME = "sentences.tsv.gz"


@dataclass(frozen=True, slots=True)
class Sentence:
    row: int  # line of the file
    voice: str
    kind: str  # where the text comes from; see `MIX` in training.text.corpus
    held_out: bool
    text: str


def write_sentences(folder: Path, sentences: Iterable[Sentence]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with gzip.open(folder / FILE_NAME, "wt", encoding="utf-8") as file:
        for s in sentences:
            file.write(f"{s.voice}\t{s.kind}\t{int(s.held_out)}\t{s.text}\n")


def read_sentences(folder: Path) -> Sequence[Sentence]:
    sentences = []
    with gzip.open(folder / FILE_NAME, "rt", encoding="utf-8") as file:
        for row, line in enumerate(file):
            voice, kind, held_out, text = line.rstrip("\n").split("\t")
            sentences.append(Sentence(row, voice, kind, held_out == "1", text))
    return sentences
