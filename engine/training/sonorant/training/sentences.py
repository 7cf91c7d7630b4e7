"""The sentence list: a file with one line of JSON per sentence. The first lines are held out."""

import gzip
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

FILE_NAME = "sentences.jsonl.gz"


@dataclass(frozen=True, slots=True)
class Sentence:
    row: int  # line of the file
    voice: str
    kind: str  # where the text comes from; see `MIX` in training.text.corpus
    language: str
    held_out: bool
    text: str


def write_sentences(folder: Path, sentences: Iterable[Sentence]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with gzip.open(folder / FILE_NAME, "wt", encoding="utf-8") as file:
        for sentence in sentences:
            values = asdict(sentence)
            del values["row"]
            file.write(json.dumps(values, ensure_ascii=False) + "\n")


def read_sentences(folder: Path) -> Sequence[Sentence]:
    with gzip.open(folder / FILE_NAME, "rt", encoding="utf-8") as file:
        return [Sentence(row, **json.loads(line)) for row, line in enumerate(file)]
