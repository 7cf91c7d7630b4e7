"""`python -m sonorant.training.evaluation.spectrograms FOLDER ...`: plots what several folders say, side by side.

A folder has numbered WAV files and report.jsonl, as for `judge`: for instance one of the teacher and one of a server.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import soundfile
from matplotlib import pyplot as plt

FLOOR_DB = -120
WINDOW_S, HOP_S = 0.025, 0.005
TOP_HZ = 12000


def plot(folders: Sequence[Path], numbers: Sequence[int], out: Path) -> None:
    size = 7 * len(folders), 2.6 * len(numbers)
    figure, axes = plt.subplots(len(numbers), len(folders), figsize=size, layout="constrained", squeeze=False)
    for column, folder in enumerate(folders):
        reports = [json.loads(line) for line in (folder / "report.jsonl").read_text(encoding="utf-8").splitlines()]
        by_number = {report["number"]: report for report in reports}
        for axis, number in zip(axes[:, column], numbers, strict=True):
            samples, rate_hz = soundfile.read(folder / f"{number:05d}.wav")
            window, hop = round(WINDOW_S * rate_hz), round(HOP_S * rate_hz)
            axis.specgram(samples + 1e-6, NFFT=window, Fs=rate_hz, noverlap=window - hop, vmin=FLOOR_DB, cmap="magma")
            report = by_number[number]
            axis.set(ylim=(0, TOP_HZ), ylabel="Hz", title=f"{folder.name}, {report['voice']}: {report['text']}")
            axis.title.set_fontsize(8)
    figure.savefig(out, dpi=90)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m sonorant.training.evaluation.spectrograms", description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--lines", default="0,1,2,3", help="numbers of the lines (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("spectrograms.png"))
    args = parser.parse_args()
    plot(args.folders, [int(number) for number in args.lines.split(",")], args.out)


if __name__ == "__main__":
    main()
