"""Utterances as a client process of the benchmark measures them."""

from sonorant.bench.measure import Outcome
from sonorant.bench.speakers import Budget
from sonorant.client.listening.playback import PlaybackReport


def outcome(
    *,
    ttfa_s: float = 0.1,
    gap_s: float = 0.0,
    status: str = "OK",
    counted: bool = True,
    begun_s: float = 0.0,
    budget: Budget | None = None,
) -> Outcome:
    report = PlaybackReport(ttfa_s, ttfa_s + 0.2, 1.0, 4.0, int(gap_s > 0), gap_s, gap_s)
    return Outcome(
        planned_s=begun_s - 0.001,
        begun_s=begun_s,
        ended_s=begun_s + 1.0,
        counted=counted,
        status=status,
        message="" if status == "OK" else "busy",
        window_audio_s=4.0,
        opening_s=0.004,
        report=report,
        budget=budget or {},
    )
