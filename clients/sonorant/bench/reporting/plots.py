"""Draws rows as four plots on one page. Needs matplotlib: pip install 'sonorant[bench]'."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

Row = Mapping[str, Any]

_LATENCIES = {"ttfa_ms_p95": "first sample received", "audible_ms_p95": "first sound heard"}
_THROUGHPUT = {"audio_s_per_s": "audio received"}


def plot(rows: Sequence[Row], path: Path) -> None:
    """Plot the distribution of TTFA per load, its p95 by rate, audio-s/s by concurrency, and continuity by load."""
    figure, ((ttfa, by_rate), (throughput, continuity)) = plt.subplots(2, 2, figsize=(13, 9), layout="constrained")
    several = len({row["target"] for row in rows}) > 1
    for row in rows:
        label = f"{row['load']}, {row['target']}" if several else row["load"]
        quantiles_ms = row["ttfa_ms_quantiles"]
        ttfa.plot(quantiles_ms, [q / 100 for q in range(len(quantiles_ms))], drawstyle="steps-post", label=label)
    ttfa.set(title="time to first audio", xlabel="ms", ylabel="share of utterances", xscale="log")
    _lines(by_rate, [row for row in rows if row["kind"] == "open"], _LATENCIES, several)
    by_rate.set(title="time to first audio at p95, open loop", xlabel="utterances per second", ylabel="ms")
    _lines(throughput, [row for row in rows if row["kind"] == "closed"], _THROUGHPUT, several)
    throughput.set(title="throughput, closed loop", xlabel="speakers at once", ylabel="seconds of audio per second")
    names = [f"{row['load']}\n{row['target']}" if several else row["load"] for row in rows]
    for offset, key in enumerate(("c50", "c100", "c200")):
        shares = [row[key] or 0 for row in rows]
        continuity.bar([x + 0.27 * (offset - 1) for x in range(len(rows))], shares, 0.25, label=f"{key[1:]} ms")
    continuity.set(title="heard without a longer wait than", ylabel="share of utterances", ylim=(0, 1.05))
    continuity.set_xticks(range(len(rows)), names, fontsize=7, rotation=20)
    for axis in (ttfa, by_rate, throughput, continuity):
        axis.grid(alpha=0.3)
        axis.set_ylim(bottom=0)
        if axis.has_data():
            axis.legend(fontsize=7)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _lines(axis: Any, rows: Sequence[Row], lines: Mapping[str, str], several: bool) -> None:
    for target in dict.fromkeys(row["target"] for row in rows):
        mine = sorted((row for row in rows if row["target"] == target), key=lambda row: float(row["amount"]))
        for key, what in lines.items():
            label = f"{what}, {target}" if several else what
            axis.plot([row["amount"] for row in mine], [row[key] for row in mine], "o-", label=label)
