"""Measures how similar clones are to their references.

`python -m sonorant.training.evaluation.clones write FOLDER --teacher TEACHER` has Kokoro make recordings of speakers
that no training has seen, lines for them, and the lines as these speakers say them; TEACHER is what the stage `fetch`
got. `recite.py FOLDER/lines.tsv --references FOLDER --out RECITED` speaks the lines, and
`python -m sonorant.training.evaluation.clones judge FOLDER RECITED` compares. `... .clones codec FOLDER RECITED
--model MODEL` makes RECITED of what the codec alone leaves of the speakers' lines: no clone can be better.
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
from tqdm import tqdm

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.checkpoint.folders import resolve_model
from sonorant.engine.code2wav.run.runner import Code2WavRunner
from sonorant.engine.config import EngineConfig
from sonorant.engine.encoder.reference import ReferenceEncoder
from sonorant.engine.types import Int16Array
from sonorant.training.alignment import LEAD_S, TAIL_S, onset_s
from sonorant.training.evaluation.acoustics import (
    FloatArray,
    envelope,
    envelope_distance,
    formant_shift,
    median_pitch_hz,
)
from sonorant.training.evaluation.judge import opinion_of, read_wav
from sonorant.training.evaluation.recognizer import SAMPLE_RATE_HZ, Whisper, error_rate, words_of
from sonorant.training.evaluation.sentences import everyday_sentences
from sonorant.training.evaluation.teach import load_teacher
from sonorant.training.speakers import Speaker, draw_mixture
from sonorant.training.teachers.speech import PAUSE, Speech

NUM_SPEAKERS = 24
LINES_EACH = 2
LEAST_DIFFERENCE = 0.5  # semitones of pitch between two speakers that have a part in common
SEED = 20261121
# The text of every reference; it is no line of the evaluation.
REFERENCE_TEXT = "The old clock in the hall is always a few minutes slow, but nobody in the house seems to mind."
TEACHER = "teacher"  # folder of the lines as the speakers themselves say them
_SEMITONES_PER_OCTAVE = 12
_PITCH_WEIGHT_DB = 1.0  # per semitone, added to the distance of the spectra


@dataclass(frozen=True, slots=True)
class Voice:
    pitch_hz: float
    envelope: FloatArray


@dataclass(frozen=True, slots=True)
class Heard:
    voice: Voice
    words: list[str]
    p808: float
    duration_s: float


@dataclass(frozen=True, slots=True)
class Line:
    speaker: int
    text: str
    clone: Heard
    teacher: Heard  # the speaker itself, with the same text


def write(folder: Path, teacher_folder: Path) -> None:
    rng = random.Random(SEED)
    speakers: list[Speaker] = []
    while len(speakers) < NUM_SPEAKERS:
        speaker = draw_mixture(rng)
        if not any(_alike(speaker, other) for other in speakers):
            speakers.append(speaker)
    texts = rng.sample(list(everyday_sentences()), LINES_EACH * NUM_SPEAKERS)
    kokoro = load_teacher("kokoro", teacher_folder, (REFERENCE_TEXT, *texts), "english")
    (folder / TEACHER).mkdir(parents=True, exist_ok=True)
    for number, speaker in enumerate(tqdm(speakers)):
        first = number * LINES_EACH
        own = (REFERENCE_TEXT, *texts[first : first + LINES_EACH])
        reference, *spoken = kokoro.speak(own, [str(speaker)] * len(own))
        assert reference is not None
        soundfile.write(folder / f"{number:02d}.wav", reference.samples, reference.rate_hz)
        (folder / f"{number:02d}.txt").write_text(REFERENCE_TEXT + "\n")
        for line, speech in enumerate(spoken, first):
            assert speech is not None
            soundfile.write(folder / TEACHER / f"{line:05d}.wav", _trimmed(speech), speech.rate_hz)
    (folder / "lines.tsv").write_text("".join(f"{line // LINES_EACH:02d}\t{text}\n" for line, text in enumerate(texts)))
    (folder / "speakers.json").write_text(json.dumps([str(speaker) for speaker in speakers]) + "\n")


def _alike(a: Speaker, b: Speaker) -> bool:
    assert a.f0_hz is not None and b.f0_hz is not None
    return bool(a.shares.keys() & b.shares.keys()) and abs(semitones(a.f0_hz, b.f0_hz)) < LEAST_DIFFERENCE


def _trimmed(speech: Speech) -> Int16Array:
    """The teacher's speech, with as much silence around it as training keeps."""
    end_s = max(end for end, phone in zip(speech.ends_s, speech.phones, strict=True) if phone != PAUSE)
    begin_s = max(0.0, onset_s(speech.samples) - LEAD_S)
    return speech.samples[round(begin_s * speech.rate_hz) : round((end_s + TAIL_S) * speech.rate_hz)]


def judge(folder: Path, recited: Path, num_processes: int) -> dict[str, Any]:
    speakers = json.loads((folder / "speakers.json").read_text())
    reports = [json.loads(line) for line in (recited / "report.jsonl").read_text(encoding="utf-8").splitlines()]
    jobs = [(folder, recited, reports[i::num_processes]) for i in range(num_processes)]
    with get_context("spawn").Pool(num_processes) as pool:
        lines = [line for part in pool.map(_hear_all, jobs) for line in part]
    references = [voice_of(read_wav(folder / f"{number:02d}.wav")) for number in range(len(speakers))]
    return {
        "lines": len(lines),
        "speakers": len(speakers),
        "ended_by_itself": sum(r.get("finish_reason") == "FINISH_REASON_COMPLETED" for r in reports),
        "duration_ratio": round(float(np.mean([x.clone.duration_s / x.teacher.duration_s for x in lines])), 3),
        "teacher": _figures(lines, references, [line.teacher for line in lines]),
        "clone": _figures(lines, references, [line.clone for line in lines]),
    }


def resynthesize(folder: Path, recited: Path, model: Path) -> None:
    """Encode and decode the lines as the speakers themselves say them, as if they were recited."""
    checkpoint, config = load_checkpoint(model), EngineConfig.of(model=model, num_slots=1)
    encoder, decoder = ReferenceEncoder(checkpoint, config), Code2WavRunner(checkpoint, config, float_output=True)
    recited.mkdir(parents=True, exist_ok=True)
    lines = [line.split("\t", 1) for line in (folder / "lines.tsv").read_text(encoding="utf-8").splitlines()]
    with (recited / "report.jsonl").open("w", encoding="utf-8") as reports:
        for number, (voice, text) in enumerate(tqdm(lines)):
            name = f"{number:05d}.wav"
            samples = read_wav(folder / TEACHER / name, encoder.sample_rate_hz)
            codes = encoder.codes((samples / 32768).astype(np.float32))
            soundfile.write(recited / name, decoder.speak(codes), checkpoint.codec.output_sample_rate)
            reports.write(json.dumps({"number": number, "voice": voice, "text": text}) + "\n")


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


def _hear_all(job: tuple[Path, Path, Sequence[dict[str, Any]]]) -> list[Line]:
    folder, recited, reports = job
    whisper = Whisper()

    def heard(path: Path) -> Heard:
        samples = read_wav(path)
        return Heard(
            voice_of(samples), whisper.hear(samples), opinion_of(samples)["p808"], len(samples) / SAMPLE_RATE_HZ
        )

    result = []
    for report in reports:
        name = f"{report['number']:05d}.wav"
        clone, teacher = heard(recited / name), heard(folder / TEACHER / name)
        result.append(Line(int(report["voice"]), report["text"], clone, teacher))
    return result


def _figures(lines: Sequence[Line], references: Sequence[Voice], heard: Sequence[Heard]) -> dict[str, Any]:
    voices = [h.voice for h in heard]
    own = [references[line.speaker] for line in lines]
    pitch = np.array([semitones(a.pitch_hz, b.pitch_hz) for a, b in zip(own, voices, strict=True)])
    # Compare with the speaker saying the same words, as words have spectra of their own.
    shift = [
        formant_shift(line.teacher.voice.envelope, voice.envelope) for line, voice in zip(lines, voices, strict=True)
    ]
    distance = [
        envelope_distance(line.teacher.voice.envelope, v.envelope) for line, v in zip(lines, voices, strict=True)
    ]

    def picked(*, by_pitch: bool) -> float:
        hits = [pick(v, references, by_pitch=by_pitch) == line.speaker for line, v in zip(lines, voices, strict=True)]
        return round(float(np.mean(hits)), 3)

    return {
        "word_error_rate": round(
            error_rate([(words_of(line.text), h.words) for line, h in zip(lines, heard, strict=True)]), 3
        ),
        "p808": round(float(np.mean([h.p808 for h in heard])), 2),
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
    writing = commands.add_parser("write")
    writing.add_argument("folder", type=Path)
    writing.add_argument(
        "--teacher", type=Path, default=Path("voice-training/teacher"), help="what the stage fetch got"
    )
    coding = commands.add_parser("codec")
    coding.add_argument("folder", type=Path)
    coding.add_argument("recited", type=Path)
    coding.add_argument("--model", default="builtin_base", help="folder or name (default: %(default)s)")
    judging = commands.add_parser("judge")
    judging.add_argument("folder", type=Path)
    judging.add_argument("recited", type=Path)
    judging.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    if args.command == "write":
        write(args.folder, args.teacher)
        return
    if args.command == "codec":
        resynthesize(args.folder, args.recited, resolve_model(args.model))
        return
    figures = judge(args.folder, args.recited, args.processes)
    (args.recited / "figures.json").write_text(json.dumps(figures, indent=1) + "\n")
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
