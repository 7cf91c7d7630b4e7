"""`python -m sonorant.training.evaluation.teach LINES --out FOLDER`: a teacher says lines, to be judged.

LINES and FOLDER have the forms that `python -m sonorant.training.evaluation.recite` reads and writes.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

import soundfile
import torch

from sonorant.training.settings import TeacherName
from sonorant.training.teachers.flite import Flite
from sonorant.training.teachers.kokoro.modules import read_vocabulary
from sonorant.training.teachers.kokoro.phonemes import Phonemizer, Spelling
from sonorant.training.teachers.kokoro.teacher import Kokoro
from sonorant.training.teachers.speech import Teacher


def teach(lines: Path, teacher: TeacherName, folder: Path, out: Path) -> None:
    """`folder`: of the teacher, as the stage `fetch` made it."""
    voices, texts = zip(*(line.split("\t", 1) for line in lines.read_text(encoding="utf-8").splitlines()), strict=True)
    out.mkdir(parents=True, exist_ok=True)
    speeches = load_teacher(teacher, folder, texts).speak(texts, voices)
    with (out / "report.jsonl").open("w", encoding="utf-8") as reports:
        for number, (voice, text, speech) in enumerate(zip(voices, texts, speeches, strict=True)):
            if speech is not None:
                soundfile.write(out / f"{number:05d}.wav", speech.samples, speech.rate_hz)
                reports.write(json.dumps({"number": number, "voice": voice, "text": text}) + "\n")


def load_teacher(name: TeacherName, folder: Path, texts: Sequence[str]) -> Teacher:
    if name == "flite":
        return Flite()
    phonemizer = Phonemizer(read_vocabulary(folder))
    spellings: Mapping[str, Spelling] = {text: words for text in texts if (words := phonemizer.spell(text))}
    return Kokoro(folder, spellings, torch.device("cuda" if torch.cuda.is_available() else "cpu"))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m sonorant.training.evaluation.teach", description=__doc__)
    parser.add_argument("lines", type=Path)
    parser.add_argument("--teacher", choices=get_args(TeacherName), default="kokoro")
    parser.add_argument("--folder", type=Path, default=Path("voice-training/teacher"), help="what the stage fetch got")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    teach(args.lines, args.teacher, args.folder, args.out)


if __name__ == "__main__":
    main()
