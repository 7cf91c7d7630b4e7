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
from sonorant.training.teachers.kokoro.phonemes import Spelling
from sonorant.training.teachers.kokoro.phonemizer import LANGUAGES, Phonemizer
from sonorant.training.teachers.kokoro.teacher import Kokoro
from sonorant.training.teachers.kokoro.voices import in_language
from sonorant.training.teachers.speech import Teacher


def teach(lines: Path, teacher: TeacherName, folder: Path, language: str, out: Path) -> None:
    """`folder`: of the teacher, as the stage `fetch` made it."""
    voices, texts = zip(*(line.split("\t", 1) for line in lines.read_text(encoding="utf-8").splitlines()), strict=True)
    out.mkdir(parents=True, exist_ok=True)
    own = [in_language(voice, language) for voice in voices]
    speeches = load_teacher(teacher, folder, texts, language).speak(texts, own)
    with (out / "report.jsonl").open("w", encoding="utf-8") as reports:
        for number, (voice, text, speech) in enumerate(zip(voices, texts, speeches, strict=True)):
            if speech is not None:
                soundfile.write(out / f"{number:05d}.wav", speech.samples, speech.rate_hz)
                report = {"number": number, "voice": voice, "language": language, "text": text}
                reports.write(json.dumps(report) + "\n")


def load_teacher(name: TeacherName, folder: Path, texts: Sequence[str], language: str) -> Teacher:
    if name == "flite":
        return Flite()
    phonemizer = Phonemizer(read_vocabulary(folder))
    spellings: Mapping[str, Spelling] = {text: words for text in texts if (words := phonemizer.spell(text, language))}
    return Kokoro(folder, spellings, torch.device("cuda" if torch.cuda.is_available() else "cpu"))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m sonorant.training.evaluation.teach", description=__doc__)
    parser.add_argument("lines", type=Path)
    parser.add_argument("--teacher", choices=get_args(TeacherName), default="kokoro")
    parser.add_argument("--folder", type=Path, default=Path("voice-training/teacher"), help="what the stage fetch got")
    parser.add_argument("--language", choices=LANGUAGES, default=LANGUAGES[0], help="of all lines; flite has the first")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    teach(args.lines, args.teacher, args.folder, args.language, args.out)


if __name__ == "__main__":
    main()
