"""Prints rows as tables, merges repeats into one row, and checks whether rows are comparable. Pure."""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]

COLUMNS = {  # columns of the table; the JSON has every field
    "load": "load",
    "ok": "ok",
    "failed": "failed",
    "ttfa_ms_p50": "TTFA p50",
    "ttfa_ms_p95": "p95",
    "ttfa_ms_p99": "p99",
    "text_ttfa_ms_p95": "from text p95",
    "planned_ttfa_ms_p95": "planned p95",
    "audible_ms_p95": "audible p95",
    "rtf_p95": "RTF p95",
    "underruns": "underruns",
    "gap_ms_max": "gap max",
    "c50": "c50",
    "c100": "c100",
    "c200": "c200",
    "audio_s_per_s": "audio-s/s",
    "mean_audio_s": "mean s",
}


def table(rows: Sequence[Row]) -> str:
    """One line per row, grouped by target; failures and other remarks are at its end."""
    targets = list(dict.fromkeys(row["target"] for row in rows))
    lines = [[*COLUMNS.values(), ""]]
    for target in targets:
        if len(targets) > 1:
            lines.append([target] + [""] * len(COLUMNS))
        lines += [[*(_cell(row[key]) for key in COLUMNS), _remark(row)] for row in rows if row["target"] == target]
    return aligned(lines)


def budgets(rows: Sequence[Row]) -> list[str]:
    """A line for each row: where the server spent the time to the first audio, if it told."""
    return [
        f"{row['load']}, mean ms to the first audio: " + ", ".join(f"{part} {ms:g}" for part, ms in told)
        for row in rows
        if (told := [(part.removesuffix("_ms"), ms) for part, ms in row.get("budget_ms", {}).items() if ms >= 0.05])
    ]


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Align cells in columns: to the left in the first and the last column, to the right in the others. Lines with only
    one cell do not widen columns."""
    full = [line for line in lines if any(line[1:])]
    widths = [max(len(line[column]) for line in full) for column in range(len(full[0]))]
    shown = []
    for line in lines:
        first, *cells, last = line
        padded = [cell.rjust(width) for cell, width in zip(cells, widths[1:-1], strict=True)]
        shown.append("  ".join([first.ljust(widths[0]), *padded, last]).rstrip())
    return "\n".join(shown)


def merged(repeats: Sequence[Row]) -> Row:
    """Merge several repeats of a load into one row of medians; `spread` has [min, median, max] of every number."""
    if len(repeats) == 1:
        return repeats[0]
    first = repeats[0]
    spread: dict[str, list[float]] = {}
    result = dict(first)
    for key, value in first.items():
        values = [row[key] for row in repeats if row[key] is not None]
        if isinstance(value, (int, float)) and key not in ("amount", "seconds", "repeat") and values:
            spread[key] = [min(values), statistics.median(values), max(values)]
            result[key] = sum(values) if key in ("ok", "failed") else spread[key][1]
    result["repeat"] = None
    result["budget_ms"] = {
        part: statistics.median(row["budget_ms"][part] for row in repeats if row["budget_ms"])
        for part in max((row["budget_ms"] for row in repeats), key=len)
    }
    result["spread"] = spread
    result["failures"] = dict(sum((Counter(row["failures"]) for row in repeats), Counter()))
    quantiles = [row["ttfa_ms_quantiles"] for row in repeats if row["ttfa_ms_quantiles"]]
    result["ttfa_ms_quantiles"] = [statistics.median(values) for values in zip(*quantiles, strict=True)]
    result["messages"] = sorted({message for row in repeats for message in row["messages"]})
    result["client_verdict"] = next((row["client_verdict"] for row in repeats if row["client_verdict"]), "")
    return result


def spread_table(rows: Sequence[Row]) -> str:
    """A table of the most important numbers: smallest, median and largest of the repeats."""
    keys = ("ttfa_ms_p50", "ttfa_ms_p95", "audible_ms_p95", "rtf_p95", "audio_s_per_s")
    lines = [["load", *(COLUMNS[key] if key != "ttfa_ms_p95" else "TTFA p95" for key in keys), ""]]
    for row in rows:
        cells = ["/".join(_cell(value) for value in row.get("spread", {}).get(key, [])) or "-" for key in keys]
        lines.append([row["load"], *cells, ""])
    return aligned(lines)


def capacity(rows: Sequence[Row], target: str, audible_p95_ms: float) -> float | None:
    """The highest rate that this target sustains: up to it nothing fails, no listener waits, and the first sound comes
    in time. None if it sustains none of the rates."""
    sustained = None
    for row in sorted((row for row in rows if row["target"] == target and row["kind"] == "open"), key=_amount):
        audible_ms = row["audible_ms_p95"]
        if row["failed"] or row["underruns"] or audible_ms is None or audible_ms > audible_p95_ms:
            break
        sustained = _amount(row)
    return sustained


def incomparable(rows: Sequence[Row], max_difference: float) -> list[str]:
    """A message for each row whose audio is longer or shorter than that of the others: ending early looks like
    speed."""
    known = [row for row in rows if row["mean_audio_s"] and row["kind"] != "paced"]
    if not known:
        return []
    middle = statistics.median_low(row["mean_audio_s"] for row in known)
    return [
        f"not comparable: {row['target']}, {row['load']}: {row['mean_audio_s']:g} s of audio on average, "
        f"others {middle:g} s; more than {max_difference:.0%} apart"
        for row in known
        if abs(row["mean_audio_s"] - middle) > max_difference * middle
    ]


def _amount(row: Row) -> float:
    return float(row["amount"])


def _remark(row: Row) -> str:
    failures = ", ".join(f"{count} {status}" for status, count in row["failures"].items())
    refused_ms = row.get("refused_ms_p95")
    refused = "" if refused_ms is None else f"refused after {refused_ms:g} ms (p95)"
    seen = row.get("sent_before")
    recordings = "" if seen is None else f"{seen:.0%} of the recordings came before"
    return "; ".join(part for part in (failures, refused, recordings, row["client_verdict"]) if part)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:g}"
