"""`python -m sonorant.training.evaluation.judge FOLDER ...`: how well voices speak, as a table.

A folder has numbered WAV files and report.jsonl, as `recite.py` writes them for a server, and `teach.py` for a
teacher. Every voice of every folder is a column.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import soundfile
import soxr

from sonorant.engine.types import Int16Array
from sonorant.training.alignment import onset_s
from sonorant.training.evaluation.acoustics import median_pitch_hz, pitch_deviation
from sonorant.training.evaluation.recognizer import SAMPLE_RATE_HZ, Dictation, Recognizer, Whisper, error_rate, words_of
from sonorant.training.evaluation.sentences import special_sentences

CODEC_RATE_HZ = 24000
HIGH_HZ = 8000
CLICK_S = 0.005
SILENT = 1e-5  # -100 dB
FIGURES = "figures.json"


@dataclass(frozen=True, slots=True)
class Heard:
    voice: str
    report: dict[str, Any]
    words: dict[str, list[str]]  # by the name of the recognizer
    measures: dict[str, float]
    kind: str  # of a special sentence; "digits" of another one that has some; else empty
    spoken: str  # the text as it is spoken


def hear_all(folder: Path, num_processes: int) -> list[Heard]:
    reports = [json.loads(line) for line in (folder / "report.jsonl").read_text(encoding="utf-8").splitlines()]
    jobs = [(folder, reports[i::num_processes]) for i in range(num_processes)]
    with get_context("spawn").Pool(num_processes) as pool:
        return [heard for part in pool.map(_hear, jobs) for heard in part]


def _hear(job: tuple[Path, Sequence[dict[str, Any]]]) -> list[Heard]:
    folder, reports = job
    special = special_sentences()
    recognizers: dict[str, dict[str, Recognizer]] = {}  # by language
    result = []
    for report in reports:
        path = folder / f"{report['number']:05d}.wav"
        samples, narrow = read_wav(path, CODEC_RATE_HZ), read_wav(path)
        measures = {
            **opinion_of(narrow),
            "above_8k_db": _above_8k_db(samples),
            "pitch_hz": median_pitch_hz(narrow),
            "pitch_sd": pitch_deviation(narrow),
            "onset_ms": 1000 * onset_s(samples),
            "click_dbfs": _level_dbfs(samples[: round(CLICK_S * CODEC_RATE_HZ)]),
            "duration_s": len(samples) / CODEC_RATE_HZ,
        }
        language = language_of(report)
        if language not in recognizers:
            english: dict[str, Recognizer] = {"pocketsphinx": Dictation()} if language == "english" else {}
            recognizers[language] = {"whisper": Whisper(language), **english}
        words = {name: recognizer.hear(narrow) for name, recognizer in recognizers[language].items()}
        text = report["text"]
        kind, spoken = special.get(text, ("digits" if any(c.isdigit() for c in text) else "", text))
        result.append(Heard(report["voice"], report, words, measures, kind, spoken))
    return result


def language_of(report: dict[str, Any]) -> str:
    return str(report.get("language") or "english")


def figures(heard: Sequence[Heard]) -> dict[str, float]:
    """What the table says of one voice in one language."""
    result = {"lines": float(len(heard))}
    kinds: dict[str, list[Heard]] = {}
    for h in heard:
        kinds.setdefault(h.kind, []).append(h)
    for kind, lines in kinds.items():
        for recognizer in heard[0].words:
            pairs = [(words_of(h.spoken, language_of(h.report)), h.words[recognizer]) for h in lines]
            result[f"wer_{kind}_{recognizer}" if kind else f"wer_{recognizer}"] = error_rate(pairs)
    for name in heard[0].measures:
        result[name] = float(np.nanmean([h.measures[name] for h in heard]))
    result["onset_ms_worst"] = max(h.measures["onset_ms"] for h in heard)
    result["click_dbfs_worst"] = max(h.measures["click_dbfs"] for h in heard)
    if all("ttfa_s" in h.report for h in heard):
        result["ttfa_ms_p50"] = 1000 * float(np.median([h.report["ttfa_s"] for h in heard]))
    if all("elapsed_s" in h.report for h in heard):
        result["rtf"] = sum(h.report["elapsed_s"] for h in heard) / sum(h.report["audio_s"] for h in heard)
    return result


def table(columns: dict[str, dict[str, float]]) -> str:
    rows = list(dict.fromkeys(name for column in columns.values() for name in column))
    lines = [f"| measure | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for row in rows:
        cells = (f"{column[row]:.4g}" if row in column else "" for column in columns.values())
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def opinion_of(samples: Int16Array) -> dict[str, float]:
    """DNSMOS of samples at SAMPLE_RATE_HZ: P.808 and overall."""
    from speechmos import dnsmos

    opinion = dnsmos.run(samples.astype(np.float32) / 32768, SAMPLE_RATE_HZ)
    return {"p808": float(opinion["p808_mos"]), "overall": float(opinion["ovrl_mos"])}


def read_wav(path: Path, rate_hz: int = SAMPLE_RATE_HZ) -> Int16Array:
    samples, own_rate_hz = soundfile.read(path, dtype="int16")
    resampled: Int16Array = soxr.resample(samples, own_rate_hz, rate_hz) if own_rate_hz != rate_hz else samples
    return resampled


def _above_8k_db(samples: Int16Array) -> float:
    power: npt.NDArray[np.float64] = np.abs(np.fft.rfft(samples)) ** 2
    high = round(len(samples) * HIGH_HZ / CODEC_RATE_HZ)
    return float(10 * np.log10(power[high:].sum() / power.sum() + 1e-12))


def _level_dbfs(samples: Int16Array) -> float:
    root_mean_square = np.sqrt(np.square(samples / 32768).mean()) if len(samples) else 0.0
    return float(20 * np.log10(root_mean_square + SILENT))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m sonorant.training.evaluation.judge", description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    columns = {}
    for folder in args.folders:
        heard = hear_all(folder, args.processes)
        for voice in sorted({h.voice for h in heard}):
            columns[f"{folder.name} {voice}"] = figures([h for h in heard if h.voice == voice])
        own = {name: column for name, column in columns.items() if name.startswith(f"{folder.name} ")}
        (folder / FIGURES).write_text(json.dumps(own, indent=1) + "\n")
    print(table(columns), end="")


if __name__ == "__main__":
    main()
