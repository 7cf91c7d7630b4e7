"""Measures how similar clones are to their references.

`python -m sonorant.training.evaluation.clones write FOLDER` makes recordings of speakers that no training has
seen, and lines for them; `python -m sonorant.cli.recite FOLDER/lines.tsv --references FOLDER --out RECITED` speaks the
lines; `python -m sonorant.training.evaluation.clones judge FOLDER RECITED` compares.
"""

import argparse
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from sonorant.engine.types import Int16Array
from sonorant.training.alignment import LEAD_S, TAIL_S
from sonorant.training.evaluation.acoustics import (
    FloatArray,
    envelope,
    envelope_distance,
    formant_shift,
    median_pitch_hz,
)
from sonorant.training.evaluation.judge import read_wav
from sonorant.training.evaluation.recognizer import SAMPLE_RATE_HZ, Dictation, error_rate, words_of
from sonorant.training.evaluation.sentences import everyday_sentences
from sonorant.training.speakers import MADE_OF, Speaker, draw
from sonorant.training.teachers.flite import Flite
from sonorant.training.teachers.speech import PAUSE, Speech

NUM_SPEAKERS = 24
LINES_EACH = 4
LEAST_DIFFERENCE = 0.15  # between two speakers' traits, which are -1 to 1: half a semitone of the formants
SEED = 20261121
# The text of every reference; it is no line of the evaluation.
REFERENCE_TEXT = "The old clock in the hall is always a few minutes slow, but nobody in the house seems to mind."
_SEMITONES_PER_OCTAVE = 12
_PITCH_WEIGHT_DB = 1.0  # per semitone, added to the distance of the spectra


@dataclass(frozen=True, slots=True)
class Voice:
    pitch_hz: float
    envelope: FloatArray


@dataclass(frozen=True, slots=True)
class Line:
    speaker: int
    text: str
    clone: Voice
    teacher: Voice  # the speaker itself, with the same text
    heard: tuple[list[str], list[str]]  # recognized words (teacher, clone)
    duration_ratio: float


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    flite, rng = Flite(), random.Random(SEED)
    speakers: list[Speaker] = []
    while len(speakers) < NUM_SPEAKERS:  # equally many of each of the teacher's voices, and no two alike
        speaker = draw(rng)
        likest = min((_difference(speaker, other) for other in speakers), default=1.0)
        if speaker.voice == tuple(MADE_OF)[len(speakers) % len(MADE_OF)] and likest > LEAST_DIFFERENCE:
            speakers.append(speaker)
    lines = []
    texts = rng.sample(list(everyday_sentences()), LINES_EACH * NUM_SPEAKERS)
    for number, speaker in enumerate(speakers):
        (speech,) = flite.speak([REFERENCE_TEXT], [str(speaker)])
        assert speech is not None
        soundfile.write(folder / f"{number:02d}.wav", speech.samples, SAMPLE_RATE_HZ)
        (folder / f"{number:02d}.txt").write_text(REFERENCE_TEXT + "\n")
        lines += [f"{number:02d}\t{text}\n" for text in texts[number * LINES_EACH : (number + 1) * LINES_EACH]]
    (folder / "lines.tsv").write_text("".join(lines))
    (folder / "speakers.json").write_text(json.dumps([str(speaker) for speaker in speakers]) + "\n")


def _difference(a: Speaker, b: Speaker) -> float:
    """1.0 for different voices of the teacher; for the same, the larger of the differences of pitch and formants."""
    return float(np.abs(a.traits() - b.traits())[:2].max()) if a.voice == b.voice else 1.0


def judge(folder: Path, recited: Path, num_processes: int) -> dict[str, Any]:
    speakers = json.loads((folder / "speakers.json").read_text())
    reports = [json.loads(line) for line in (recited / "report.jsonl").read_text(encoding="utf-8").splitlines()]
    jobs = [(recited, speakers, reports[i::num_processes]) for i in range(num_processes)]
    with get_context("spawn").Pool(num_processes) as pool:
        lines = [line for part in pool.map(_hear_all, jobs) for line in part]
    references = [voice_of(read_wav(folder / f"{number:02d}.wav")) for number in range(len(speakers))]
    return {
        "lines": len(lines),
        "speakers": len(speakers),
        "ended_by_itself": sum(r.get("finish_reason") == "FINISH_REASON_COMPLETED" for r in reports),
        "duration_ratio": round(float(np.mean([line.duration_ratio for line in lines])), 3),
        "teacher": _figures(lines, references, [line.teacher for line in lines], 0),
        "clone": _figures(lines, references, [line.clone for line in lines], 1),
    }


def voice_of(samples: Int16Array) -> Voice:
    return Voice(median_pitch_hz(samples), envelope(samples))


def semitones(a_hz: float, b_hz: float) -> float:
    return float(_SEMITONES_PER_OCTAVE * np.log2(b_hz / a_hz))


def pick(voice: Voice, references: Sequence[Voice], *, by_pitch: bool) -> int:
    """Index of the reference most similar to `voice`: by the spectrum's mean shape and, if `by_pitch`, by pitch too."""
    distances = [envelope_distance(voice.envelope, reference.envelope) for reference in references]
    if by_pitch:
        pitches = [abs(semitones(reference.pitch_hz, voice.pitch_hz)) for reference in references]
        distances = [d + _PITCH_WEIGHT_DB * p for d, p in zip(distances, np.nan_to_num(pitches, nan=24.0), strict=True)]
    return int(np.argmin(distances))


def trimmed_s(speech: Speech) -> float:
    """Length of the teacher's speech, with as much silence around it as training keeps."""
    spoken = [i for i, phone in enumerate(speech.phones) if phone != PAUSE]
    begin_s = speech.ends_s[spoken[0] - 1] if spoken[0] else 0.0
    return LEAD_S + speech.ends_s[spoken[-1]] - begin_s + TAIL_S


def _hear_all(job: tuple[Path, Sequence[str], Sequence[dict[str, Any]]]) -> list[Line]:
    recited, speakers, reports = job
    flite, dictation = Flite(), Dictation()
    result = []
    for report in reports:
        speaker, text = int(report["voice"]), report["text"]
        (speech,) = flite.speak([text], [speakers[speaker]])
        assert speech is not None
        said = read_wav(recited / f"{report['number']:05d}.wav")
        heard = dictation.hear(speech.samples), dictation.hear(said)
        ratio = len(said) / SAMPLE_RATE_HZ / trimmed_s(speech)
        result.append(Line(speaker, text, voice_of(said), voice_of(speech.samples), heard, ratio))
    return result


def _figures(lines: Sequence[Line], references: Sequence[Voice], voices: Sequence[Voice], index: int) -> dict[str, Any]:
    own = [references[line.speaker] for line in lines]
    pitch = np.array([semitones(a.pitch_hz, b.pitch_hz) for a, b in zip(own, voices, strict=True)])
    # Compare with the speaker saying the same words, as words have spectra of their own.
    shift = [formant_shift(line.teacher.envelope, voice.envelope) for line, voice in zip(lines, voices, strict=True)]
    distance = [envelope_distance(line.teacher.envelope, v.envelope) for line, v in zip(lines, voices, strict=True)]

    def picked(*, by_pitch: bool) -> float:
        hits = [pick(v, references, by_pitch=by_pitch) == line.speaker for line, v in zip(lines, voices, strict=True)]
        return round(float(np.mean(hits)), 3)

    return {
        "word_error_rate": round(error_rate([(words_of(line.text), line.heard[index]) for line in lines]), 3),
        "pitch_error_semitones_median": round(float(np.nanmedian(np.abs(pitch))), 2),
        "pitch_within_2_semitones": round(float(np.mean(np.abs(pitch) < 2)), 3),
        "pitch_correlation": round(_correlation([r.pitch_hz for r in own], [v.pitch_hz for v in voices]), 3),
        "formant_error_semitones_mean": round(float(np.mean(np.abs(shift))), 2),
        "envelope_distance_db": round(float(np.mean(distance)), 2),
        "picked_by_spectrum": picked(by_pitch=False),
        "picked_by_spectrum_and_pitch": picked(by_pitch=True),
    }


def _correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Correlation of the logarithms, without pairs in which a pitch is missing."""
    pairs = np.log([pair for pair in zip(a, b, strict=True) if np.isfinite(pair).all()])
    return float(np.corrcoef(pairs.T)[0, 1])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m sonorant.training.evaluation.clones", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("write").add_argument("folder", type=Path)
    judging = commands.add_parser("judge")
    judging.add_argument("folder", type=Path)
    judging.add_argument("recited", type=Path)
    judging.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    if args.command == "write":
        write(args.folder)
        return
    figures = judge(args.folder, args.recited, args.processes)
    (args.recited / "figures.json").write_text(json.dumps(figures, indent=1) + "\n")
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
