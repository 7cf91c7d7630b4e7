"""Tables, repeats, and what may be compared."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sonorant.bench.loads import Load
from sonorant.bench.measure import Measured
from sonorant.bench.reporting import report
from sonorant.bench.reporting.statistics import row
from tests.clients.bench.outcomes import outcome


def row_of(kind: Any = "closed", amount: float = 2, address: str = "one:1", **changes: Any) -> dict[str, Any]:
    measured = row(f"speak {address}", Load(kind, amount, 10.0, 1.0), 0, [Measured([outcome()])], 10.0)
    return {**measured, **changes}


def test_a_table_has_every_row_under_its_target() -> None:
    rows = [row_of(), row_of(amount=4), row_of(address="two:2", failed=1, failures={"TIMEOUT": 1})]
    lines = report.table(rows).splitlines()
    assert [line.split()[0] for line in lines] == ["load", "speak", "closed", "closed", "speak", "closed"]
    assert lines[5].endswith("1 TIMEOUT")
    ends = {line.index(cell) + len(cell) for line, cell in zip(lines[2:4], ("closed 2", "closed 4"), strict=True)}
    assert len(ends) == 1


def test_a_row_tells_how_quickly_callers_were_refused() -> None:
    lines = report.table([row_of(failed=3, failures={"RESOURCE_EXHAUSTED": 3}, refused_ms_p95=2.5)]).splitlines()
    assert lines[-1].endswith("3 RESOURCE_EXHAUSTED; refused after 2.5 ms (p95)")


def test_a_table_of_one_target_does_not_name_it() -> None:
    assert "one:1" not in report.table([row_of()])


@given(st.lists(st.floats(1, 1e4), min_size=2, max_size=7))
def test_repeats_are_merged_into_smallest_median_and_largest(values: list[float]) -> None:
    merged = report.merged([row_of(ttfa_ms_p50=value) for value in values])
    least, middle, most = merged["spread"]["ttfa_ms_p50"]
    assert (least, most) == (min(values), max(values)) and least <= middle <= most
    assert merged["ttfa_ms_p50"] == middle
    assert merged["ok"] == len(values)
    assert report.spread_table([merged]).splitlines()[1].startswith("closed 2")


@given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=9, unique_by=lambda each: each[0]))
def test_capacity_is_the_last_rate_before_the_first_that_fails(rates: list[tuple[int, bool]]) -> None:
    rows = [row_of("open", rate, audible_ms_p95=40 if fine else 60) for rate, fine in rates]
    rows += [row_of("open", 5, "two:2", audible_ms_p95=1), row_of("closed", 10, audible_ms_p95=1)]
    too_much = min((rate for rate, fine in rates if not fine), default=10)
    expected = max((rate for rate, _ in rates if rate < too_much), default=None)
    assert report.capacity(rows, "speak one:1", 50.0) == expected


def test_rates_with_failures_or_gaps_are_not_sustained() -> None:
    fine = row_of("open", 1, audible_ms_p95=1)
    for wrong in ({"failed": 1}, {"underruns": 0.01}, {"audible_ms_p95": None}):
        assert report.capacity([fine, row_of("open", 2, **{"audible_ms_p95": 1, **wrong})], "speak one:1", 50.0) == 1


def test_audio_of_another_length_is_not_comparable() -> None:
    alike = [row_of(mean_audio_s=4.0), row_of(mean_audio_s=4.05), row_of("open", 3, mean_audio_s=3.95)]
    assert report.incomparable(alike, 0.03) == []
    (complaint,) = report.incomparable([*alike, row_of("open", 9, mean_audio_s=3.5)], 0.03)
    assert "open 9/s" in complaint and "3.5 s" in complaint and "3%" in complaint


def test_paced_sessions_are_not_compared_by_length() -> None:
    assert report.incomparable([row_of(mean_audio_s=4.0), row_of("paced", 9, mean_audio_s=60.0)], 0.03) == []
