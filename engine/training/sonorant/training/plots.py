"""Plots of a training run. Needs matplotlib."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

from sonorant.training.talker.train import History


def plot_talker(history: History, path: Path) -> None:
    """Plot the training losses on the left, and the share of right codes on held-out sentences on the right."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.5), layout="constrained")
    steps = [values["step"] for values in history.steps]
    for name in ("first", "predictor", "guide", "phones"):
        left.plot(steps, [values[name] for values in history.steps], label=name)
    left.set(title="training loss", xlabel="step", ylabel="cross-entropy", yscale="log")
    evaluated = [values["step"] for values in history.evaluations]
    for name in history.evaluations[-1]:
        if "_hits_" in name:
            right.plot(evaluated, [values[name] for values in history.evaluations], label=name)
    right.set(title="held-out sentences, true history", xlabel="step", ylabel="codes that are right", ylim=(0, 1))
    for axis in (left, right):
        axis.legend(fontsize=7)
        axis.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    plt.close(figure)
