"""Makes one row of results from the measurements of the client processes. Pure."""

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from sonorant.bench.loads import Load
from sonorant.bench.measure import Measured, Outcome
from sonorant.bench.speakers import Budget
from sonorant.client.listening.playback import PlaybackReport

Row = Mapping[str, Any]

PERCENTS = (50, 95, 99)
CONTINUITY_MS = (50, 100, 200)


def row(target: str, load: Load, repeat: int, parts: Sequence[Measured], max_client_lag_ms: float) -> Row:
    """Fields of the row that are not obvious:

    ttfa_ms          opening the call -> first sample received
    audible_ms       opening the call -> first sound heard, by a listener without a start buffer
    text_ttfa_ms     first text sent -> first sample received
    planned_ttfa_ms  planned beginning -> first sample received; includes the delay of a late client
    planned_audible_ms  planned beginning -> first sound heard
    opening_ms       opening the call -> first text sent
    end_to_end_ms    first text sent -> last sample received
    refused_ms       opening the call -> RESOURCE_EXHAUSTED
    underruns        share of utterances (paced: of sessions) in which that listener had to wait
    gap_ms           the longest of those waits, 0 without any; `gap_total_ms` is their sum
    c50, c100, c200  share without a wait of more than 50, 100, 200 ms
    sent_before      share of utterances whose recording came with an earlier one of the load; None without recordings
    budget_ms        where the server spent the time to the first audio, mean of each part; empty if it did not tell
    audio_s_per_s    audio of all utterances that arrived within the measured time, over that time
    client           how well the client itself kept up; see `client_verdict`
    """
    outcomes = [outcome for part in parts for outcome in part.outcomes]
    counted = [outcome for outcome in outcomes if outcome.counted]
    good = [outcome for outcome in counted if outcome.status == "OK"]
    reports = [outcome.report for outcome in good]
    failures = Counter(outcome.status for outcome in counted if outcome.status != "OK")
    refused_ms = [(each.ended_s - each.begun_s) * 1000 for each in counted if each.status == "RESOURCE_EXHAUSTED"]
    opening_s = [outcome.opening_s - (outcome.begun_s - outcome.planned_s) for outcome in good]
    ttfa_ms = [(opening + report.ttfa_s) * 1000 for opening, report in zip(opening_s, reports, strict=True)]
    audible_ms = [(opening + report.ttfa_audible_s) * 1000 for opening, report in zip(opening_s, reports, strict=True)]
    return {
        "target": target,
        "load": str(load),
        "kind": load.kind,
        "amount": load.amount,
        "seconds": load.seconds,
        "repeat": repeat,
        "ok": len(good),
        "failed": sum(failures.values()),
        "failures": dict(failures),
        "messages": sorted({outcome.message for outcome in counted if outcome.status != "OK"})[:10],
        **_percentiles("ttfa_ms", ttfa_ms),
        **_percentiles("audible_ms", audible_ms),
        **_percentiles("text_ttfa_ms", [report.ttfa_s * 1000 for report in reports]),
        **_percentiles("planned_ttfa_ms", [(o.opening_s + o.report.ttfa_s) * 1000 for o in good]),
        **_percentiles("planned_audible_ms", [(o.opening_s + o.report.ttfa_audible_s) * 1000 for o in good]),
        **_percentiles("opening_ms", [each * 1000 for each in opening_s]),
        **_percentiles("end_to_end_ms", [report.elapsed_s * 1000 for report in reports]),
        **_percentiles("refused_ms", refused_ms),
        **_percentiles("rtf", [report.rtf for report in reports]),
        **_gaps(reports),
        "audio_s_per_s": _rounded(sum(outcome.window_audio_s for outcome in outcomes) / load.seconds),
        "per_s": _rounded(len(good) / load.seconds),
        **_percentiles("audio_s", [report.audio_s for report in reports]),
        "mean_audio_s": _rounded(sum(report.audio_s for report in reports) / len(reports)) if reports else None,
        "budget_ms": _means([outcome.budget for outcome in good if outcome.budget]),
        "sent_before": share_of(each.was_sent for each in counted if each.was_sent is not None),
        "peak_in_flight": peak_in_flight(outcomes),
        "ttfa_ms_quantiles": [_rounded(percentile(ttfa_ms, q)) for q in range(101)] if ttfa_ms else [],
        "client": (client := _client(load, parts)),
        "client_verdict": client_verdict(client, max_client_lag_ms),
    }


def _means(budgets: Sequence[Budget]) -> Row:
    return {part: _rounded(statistics.fmean(each[part] for each in budgets)) for part in budgets[0]} if budgets else {}


def _gaps(reports: Sequence[PlaybackReport]) -> Row:
    longest_ms = [report.longest_gap_s * 1000 for report in reports]
    return {
        **_percentiles("gap_ms", longest_ms),
        "gap_ms_max": _rounded(max(longest_ms)) if longest_ms else None,
        "gap_total_ms_max": _rounded(max(report.gap_s * 1000 for report in reports)) if reports else None,
        "num_gaps": sum(report.num_gaps for report in reports),
        "underruns": share_of(report.num_gaps > 0 for report in reports),
        **{f"c{ms}": share_of(gap <= ms for gap in longest_ms) for ms in CONTINUITY_MS},
    }


def _client(load: Load, parts: Sequence[Measured]) -> Row:
    """How well the client itself kept up: `lag_ms` of its event loop, `late_ms` of its utterances."""
    lags_ms = [lag_s * 1000 for part in parts for lag_s in part.lags_s]
    counted = [outcome for part in parts for outcome in part.outcomes if outcome.counted]
    return {
        "processes": len(parts),
        "cores_used": _rounded(sum(part.cpu_s for part in parts) / load.seconds),
        **_percentiles("lag_ms", lags_ms),
        "lag_ms_max": _rounded(max(lags_ms, default=0.0)),
        **_percentiles("late_ms", [(outcome.begun_s - outcome.planned_s) * 1000 for outcome in counted]),
    }


def client_verdict(client: Row, max_lag_ms: float) -> str:
    """Empty if the client kept up; otherwise what it did too late, as its delay is then a part of the numbers."""
    for name, what in (("lag_ms_p99", "reading what had arrived"), ("late_ms_p99", "beginning utterances")):
        if client[name] is not None and client[name] > max_lag_ms:
            return f"invalid: the client was up to {client[name]:g} ms (p99) late in {what}"
    return ""


def percentile(values: Sequence[float], percent: float) -> float:
    """Percentile by nearest rank, so always one of the values; NaN without values."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def share_of(flags: Any) -> float | None:
    """Share of true flags; None without flags."""
    flags = list(flags)
    return _rounded(sum(flags) / len(flags)) if flags else None


def peak_in_flight(outcomes: Sequence[Outcome]) -> int:
    changes = sorted([(o.begun_s, 1) for o in outcomes] + [(o.ended_s, -1) for o in outcomes])
    peak = now = 0
    for _, change in changes:
        now += change
        peak = max(peak, now)
    return peak


def _percentiles(name: str, values: Sequence[float]) -> Row:
    known = [value for value in values if not math.isnan(value)]
    return {f"{name}_p{percent}": _rounded(percentile(known, percent)) if known else None for percent in PERCENTS}


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
