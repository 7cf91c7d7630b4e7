"""`python -m sonorant.training.evaluation.judge FOLDER`: how well a recognizer understands recited lines.

FOLDER is what `python -m sonorant.cli.recite` wrote: numbered WAV files and report.jsonl. The teacher says the same
lines, and every figure is given for the teacher as well.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import soxr

from sonorant.engine.types import Int16Array
from sonorant.training.alignment import LEAD_S, TAIL_S
from sonorant.training.evaluation.recognizer import (
    SAMPLE_RATE_HZ,
    Dictation,
    PhoneLoop,
    SentenceList,
    error_rate,
    known_words,
    words_of,
)
from sonorant.training.flite import PHONES, Flite, Speech


@dataclass(frozen=True, slots=True)
class Line:
    number: int
    voice: str
    text: str
    report: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Heard:
    """One line as spoken by (teacher, student)."""

    line: Line
    durations_s: tuple[float, float]
    phones: tuple[str, ...]  # those that the teacher was to speak
    words_heard: tuple[list[str], list[str]]
    phones_heard: tuple[list[str], list[str]]
    picked: tuple[bool, bool] | None  # whether it was picked from the list of sentences; None: it is not in the list


def judge(folder: Path, num_processes: int) -> dict[str, Any]:
    reports = [json.loads(line) for line in (folder / "report.jsonl").read_text(encoding="utf-8").splitlines()]
    lines = [Line(report["number"], report["voice"], report["text"], report) for report in reports]
    known = known_words()
    listed = [line.text for line in lines if _can_be_listed(line.text, known)]
    jobs = [(folder, lines[i::num_processes], listed) for i in range(num_processes)]
    with get_context("spawn").Pool(num_processes) as pool:
        heard = [h for part in pool.map(_hear_all, jobs) for h in part]
    return _figures(heard)


def _hear_all(job: tuple[Path, Sequence[Line], Sequence[str]]) -> list[Heard]:
    folder, lines, listed = job
    teacher, dictation, phone_loop = Flite(), Dictation(), PhoneLoop()
    sentences = {text: " ".join(words_of(text)) for text in listed}
    with tempfile.TemporaryDirectory() as scratch:
        chooser = SentenceList(list(sentences.values()), Path(scratch) / "list.jsgf")
        result = []
        for line in lines:
            speech = teacher.speak(line.text, line.voice)
            if speech is None:
                continue
            said, recited = speech.samples, read_wav(folder / f"{line.number:05d}.wav")
            wanted = sentences.get(line.text)
            result.append(
                Heard(
                    line=line,
                    durations_s=(trimmed_s(speech), len(recited) / SAMPLE_RATE_HZ),
                    # The recognizer has one phone less than flite.
                    phones=tuple({"ax": "ah"}.get(PHONES[p], PHONES[p]) for p in speech.phones if PHONES[p] != "pau"),
                    words_heard=(dictation.hear(said), dictation.hear(recited)),
                    phones_heard=(phone_loop.hear(said), phone_loop.hear(recited)),
                    picked=(chooser.hear(said) == wanted, chooser.hear(recited) == wanted) if wanted else None,
                )
            )
    return result


def trimmed_s(speech: Speech) -> float:
    """Length of the teacher's speech, with as much silence around it as training keeps."""
    spoken = [i for i, word in enumerate(speech.words) if word >= 0]
    begin_s = speech.ends_s[spoken[0] - 1] if spoken[0] else 0.0
    return LEAD_S + speech.ends_s[spoken[-1]] - begin_s + TAIL_S


def _figures(heard: Sequence[Heard]) -> dict[str, Any]:
    spelled = [h for h in heard if not any(c.isdigit() for c in h.line.text)]
    listed = [h for h in heard if h.picked is not None]
    ratios = np.array([h.durations_s[1] / h.durations_s[0] for h in heard])
    reports = [h.line.report for h in heard]
    result: dict[str, Any] = {
        "lines": len(heard),
        "words": sum(len(words_of(h.line.text)) for h in spelled),
        "sentences_listed": len(listed),
        "duration_ratio": {
            "mean": round(float(ratios.mean()), 3),
            "sd": round(float(ratios.std()), 3),
            "min": round(float(ratios.min()), 3),
            "max": round(float(ratios.max()), 3),
        },
        "ended_by_itself": sum(r.get("finish_reason") == "FINISH_REASON_COMPLETED" for r in reports),
        "rtf": round(sum(r["elapsed_s"] for r in reports) / sum(r["audio_s"] for r in reports), 3),
    }
    if "ttfa_s" in reports[0]:
        result["ttfa_p50_ms"] = round(1000 * float(np.median([r["ttfa_s"] for r in reports])))
    for index, who in enumerate(("teacher", "student")):
        result[who] = {
            "word_error_rate": _rounded([(words_of(h.line.text), h.words_heard[index]) for h in spelled]),
            "phone_error_rate": _rounded([(h.phones, h.phones_heard[index]) for h in heard]),
            "picked": round(float(np.mean([h.picked[index] for h in listed if h.picked])), 3) if listed else None,
        }
        for voice in sorted({h.line.voice for h in spelled}):
            pairs = [(words_of(h.line.text), h.words_heard[index]) for h in spelled if h.line.voice == voice]
            result[who][f"word_error_rate_{voice}"] = _rounded(pairs)
    return result


def _rounded(pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> float:
    return round(error_rate(pairs), 3)


def _can_be_listed(text: str, known: frozenset[str]) -> bool:
    return not any(c.isdigit() for c in text) and all(word in known for word in words_of(text))


def read_wav(path: Path) -> Int16Array:
    """Samples of a WAV file at the recognizer's SAMPLE_RATE_HZ."""
    samples, rate_hz = soundfile.read(path, dtype="int16")
    resampled: Int16Array = soxr.resample(samples, rate_hz, SAMPLE_RATE_HZ)
    return resampled


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m sonorant.training.evaluation.judge", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    figures = judge(args.folder, args.processes)
    (args.folder / "figures.json").write_text(json.dumps(figures, indent=1) + "\n")
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
