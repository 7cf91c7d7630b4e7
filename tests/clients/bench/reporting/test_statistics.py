"""Rows of results from what client processes measured."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonorant.bench.loads import Load
from sonorant.bench.measure import Measured
from sonorant.bench.reporting.statistics import peak_in_flight, percentile, row
from tests.clients.bench.outcomes import outcome

TARGET = "speak host:1"
LOAD = Load("closed", 2, seconds=10.0, warm_up_s=1.0)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(0, 100), st.floats(0, 100))
def test_a_percentile_is_one_of_the_values_and_rises(values: list[float], one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert percentile(values, low) in values
    assert percentile(values, low) <= percentile(values, high)
    assert percentile(values, 100) == max(values) and percentile(values, 0) == min(values)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.integers(1, 100))
def test_that_percentage_of_the_values_is_not_above_the_percentile(values: list[float], percent: int) -> None:
    found = percentile(values, percent)
    assert sum(value <= found for value in values) >= percent / 100 * len(values)
    assert sum(value < found for value in values) < percent / 100 * len(values)


def test_without_values_there_is_no_percentile() -> None:
    assert math.isnan(percentile([], 50))


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9)), max_size=30))
def test_the_peak_is_the_largest_number_at_any_moment(spans: list[tuple[int, int]]) -> None:
    outcomes = [outcome(begun_s=float(begin)) for begin, _ in spans]
    for each, (begin, length) in zip(outcomes, spans, strict=True):
        each.ended_s = float(begin + length)
    moments = [sum(begin <= now < begin + length for begin, length in spans) for now in range(30)]
    assert peak_in_flight(outcomes) == max(moments)


def test_a_row_has_the_times_of_its_utterances() -> None:
    parts = [
        Measured([outcome(ttfa_s=0.1), outcome(ttfa_s=0.3, gap_s=0.06)], lags_s=[0.001] * 100, cpu_s=2.0),
        Measured([outcome(counted=False, ttfa_s=9.0), outcome(status="RESOURCE_EXHAUSTED")], lags_s=[0.002], cpu_s=1.0),
    ]
    measured = row(TARGET, LOAD, 0, parts, max_client_lag_ms=10.0)
    assert (measured["ok"], measured["failed"], measured["failures"]) == (2, 1, {"RESOURCE_EXHAUSTED": 1})
    assert (measured["text_ttfa_ms_p50"], measured["text_ttfa_ms_p95"]) == (100, 300)
    assert (measured["ttfa_ms_p50"], measured["ttfa_ms_p95"]) == (103, 303)
    assert (measured["planned_ttfa_ms_p50"], measured["audible_ms_p50"]) == (104, 303)
    assert measured["refused_ms_p50"] == 1000
    assert measured["rtf_p50"] == 0.25
    assert (measured["underruns"], measured["gap_ms_max"], measured["num_gaps"]) == (0.5, 60, 1)
    assert (measured["c50"], measured["c100"], measured["c200"]) == (0.5, 1, 1)
    assert measured["audio_s_per_s"] == pytest.approx(1.6)  # of all four, counted or not: it arrived in time
    assert measured["mean_audio_s"] == 4
    assert measured["client"]["cores_used"] == pytest.approx(0.3)
    assert measured["ttfa_ms_quantiles"][0] == 103 and measured["ttfa_ms_quantiles"][100] == 303
    assert measured["client_verdict"] == ""


def test_a_row_without_any_success_has_no_numbers() -> None:
    measured = row(TARGET, LOAD, 0, [Measured([outcome(status="UNAVAILABLE")])], 10.0)
    assert measured["ok"] == 0 and measured["ttfa_ms_p50"] is None and measured["mean_audio_s"] is None


def test_a_row_of_a_late_client_is_invalid() -> None:
    late_loop = Measured([outcome()], lags_s=[0.001] * 90 + [0.05] * 10)
    assert "50 ms" in row(TARGET, LOAD, 0, [late_loop], 10.0)["client_verdict"]
    assert row(TARGET, LOAD, 0, [late_loop], 60.0)["client_verdict"] == ""
    late_start = outcome()
    late_start.planned_s = late_start.begun_s - 0.2
    assert "beginning" in row(TARGET, LOAD, 0, [Measured([late_start])], 10.0)["client_verdict"]


def test_a_row_says_where_the_server_spent_the_time_to_the_first_audio() -> None:
    told = [outcome(budget={"text_ms": 1.0, "step_ms": 4.0}), outcome(budget={"text_ms": 2.0, "step_ms": 4.0})]
    silent = [outcome(), outcome(status="BUSY", budget={"text_ms": 99.0})]  # another protocol; one that failed
    measured = row(TARGET, LOAD, 0, [Measured(told), Measured(silent)], max_client_lag_ms=10.0)
    assert measured["budget_ms"] == {"text_ms": 1.5, "step_ms": 4.0}
    assert row(TARGET, LOAD, 0, [Measured(silent)], max_client_lag_ms=10.0)["budget_ms"] == {}
