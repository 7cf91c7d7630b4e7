"""Numbers out of outcomes, as a table and as JSON. Pure but for `environment`, which looks at this machine."""

import os
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from clients.bench.load import Load, Outcome

Row = Mapping[str, Any]

COLUMNS = {  # of the table; the JSON has every field
    "concurrency": "streams",
    "utterances": "ok",
    "failed": "failed",
    "ttfa_ms_p50": "TTFA p50",
    "ttfa_ms_p95": "p95",
    "audible_ms_p50": "audible p50",
    "rtf_p50": "RTF p50",
    "rtf_p95": "p95",
    "underrun_share": "underrun",
    "gap_ms_p95": "gap p95",
    "audio_s_per_s": "audio-s/s",
    "mean_audio_s": "mean audio s",
}


def row(load: Load, outcome: Outcome) -> Row:
    """One cell. `underrun_share`: utterances with at least one gap; `gap_ms`: silence added to an utterance by gaps."""
    reports = outcome.reports
    audio_s = sum(report.audio_s for report in reports)
    return {
        **asdict(load),
        "utterances": len(reports),
        "failed": len(outcome.failures),
        "failures": sorted(set(outcome.failures)),
        **_percentiles("ttfa_ms", [report.ttfa_s * 1000 for report in reports]),
        **_percentiles("audible_ms", [report.ttfa_audible_s * 1000 for report in reports]),
        **_percentiles("rtf", [report.rtf for report in reports]),
        **_percentiles("gap_ms", [report.gap_s * 1000 for report in reports]),
        "underrun_share": _round(np.mean([report.num_gaps > 0 for report in reports])) if reports else None,
        "audio_s_per_s": _round(audio_s / outcome.wall_s),
        "mean_audio_s": _round(audio_s / len(reports)) if reports else None,
        "wall_s": _round(outcome.wall_s),
    }


def table(rows: Sequence[Row]) -> str:
    lines = [list(COLUMNS.values())] + [["-" if r[key] is None else f"{r[key]:g}" for key in COLUMNS] for r in rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def environment() -> Row:
    """Commit and machine, so that a number can be placed later."""
    return {
        "commit": _first_line("git", "describe", "--always", "--dirty", "--abbrev=12"),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "gpu": _first_line("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"),
        "platform": platform.platform(),
        "python": platform.python_version(),
    }


def _percentiles(name: str, values: Sequence[float]) -> Row:
    known = [value for value in values if not np.isnan(value)]
    return {f"{name}_p{q}": _round(np.percentile(known, q)) if known else None for q in (50, 95, 99)}


def _round(value: float | np.floating[Any]) -> float:
    return float(f"{value:.4g}")


def _first_line(*command: str) -> str | None:
    """Of what the command prints here; None if there is no such command or it fails."""
    if shutil.which(command[0]) is None:
        return None
    result = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return result.stdout.partition("\n")[0] if result.returncode == 0 else None


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
