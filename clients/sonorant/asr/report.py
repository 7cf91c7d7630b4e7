"""Reports on a run: how long words waited, and how many were spoken wrong. Pure."""

from collections.abc import Sequence
from statistics import fmean, quantiles


def summary(delays_s: Sequence[float], num_contradicted: int, ttfa_s: float | None, audio_s: float) -> list[str]:
    """The report as lines for people."""
    if not delays_s:
        return ["nothing was recognized"]
    delays_ms = [delay_s * 1000 for delay_s in delays_s]
    hundredths = quantiles(delays_ms * 2 if len(delays_ms) == 1 else delays_ms, n=100, method="inclusive")
    p50, p95 = hundredths[49], hundredths[94]
    share = f"{num_contradicted / len(delays_s):.1%}"
    lines = [
        f"words  {len(delays_s)} spoken, {num_contradicted} ({share}) of them not as in the final transcript",
        f"delay  {fmean(delays_ms):.0f} ms added per word, p50 {p50:.0f}, p95 {p95:.0f}, longest {max(delays_ms):.0f}",
    ]
    if ttfa_s is not None:
        lines.append(f"TTFA   {ttfa_s * 1000:.0f} ms from the first word released to the first audio")
    return [*lines, f"audio  {audio_s:.2f} s"]
