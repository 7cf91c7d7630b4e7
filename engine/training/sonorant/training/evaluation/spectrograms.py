"""`python -m sonorant.training.evaluation.spectrograms FOLDER`: plots teacher and student side by side.

FOLDER is what `python -m sonorant.cli.recite` wrote; for clones, --clones is the folder with their references.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import soundfile
from matplotlib import pyplot as plt

from sonorant.training.flite import SAMPLE_RATE_HZ, Flite

FLOOR_DB = -80
WINDOW_S, HOP_S = 0.025, 0.005


def plot(folder: Path, numbers: Sequence[int], clones: Path | None, out: Path) -> None:
    reports = [json.loads(line) for line in (folder / "report.jsonl").read_text(encoding="utf-8").splitlines()]
    speakers = json.loads((clones / "speakers.json").read_text()) if clones else []
    teacher = Flite()
    figure, axes = plt.subplots(len(numbers), 2, figsize=(14, 2.6 * len(numbers)), layout="constrained", squeeze=False)
    for (left, right), number in zip(axes, numbers, strict=True):
        voice, text = reports[number]["voice"], reports[number]["text"]
        voice = speakers[int(voice)] if speakers else voice
        speech = teacher.speak(text, voice)
        if speech is None:
            raise ValueError(f"the teacher cannot speak line {number}: {text!r}")
        student, rate_hz = soundfile.read(folder / f"{number:05d}.wav")
        for axis, who, samples, rate in (
            (left, "teacher", speech.samples / 32768, SAMPLE_RATE_HZ),
            (right, "student", student, rate_hz),
        ):
            window, hop = round(WINDOW_S * rate), round(HOP_S * rate)
            axis.specgram(samples + 1e-6, NFFT=window, Fs=rate, noverlap=window - hop, vmin=FLOOR_DB - 40, cmap="magma")
            axis.set(ylim=(0, 8000), ylabel="Hz", title=f"{who}, {voice}: {text}")
            axis.title.set_fontsize(8)
    figure.savefig(out, dpi=90)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m sonorant.training.evaluation.spectrograms", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--lines", default="0,1,2,3", help="numbers of the lines (default: %(default)s)")
    parser.add_argument("--clones", type=Path)
    parser.add_argument("--out", type=Path, default=Path("spectrograms.png"))
    args = parser.parse_args()
    plot(args.folder, [int(number) for number in args.lines.split(",")], args.clones, args.out)


if __name__ == "__main__":
    main()
