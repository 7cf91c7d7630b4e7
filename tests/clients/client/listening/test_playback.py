"""The listener on paper: times to first audio, gaps, RTF."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonorant.client.listening.playback import PlaybackMeter

RATE = 1000  # one sample is a millisecond


def loud(num_samples: int, *, silent: int = 0) -> bytes:
    samples = np.resize([3000, -3000], num_samples).astype("<i2")
    samples[:silent] = 0
    return samples.tobytes()


def test_first_audio_and_first_audible_run_from_the_first_text() -> None:
    meter = PlaybackMeter(RATE)
    meter.text_sent(10.0)
    meter.text_sent(10.1)
    meter.audio_arrived(10.2, 100, loud(100, silent=100))
    meter.audio_arrived(10.25, 100, loud(100, silent=40))
    report = meter.report()
    assert report.ttfa_s == pytest.approx(0.2)
    # Heard after the silent chunk has played; the first loud window of 20 samples reaches 10 into the silence.
    assert report.ttfa_audible_s == pytest.approx(0.2 + 0.1 + 0.04 - 0.01)
    assert report.num_gaps == 0


def test_late_audio_is_a_gap_as_long_as_the_listener_waited() -> None:
    meter = PlaybackMeter(RATE)
    meter.text_sent(0.0)
    meter.audio_arrived(1.0, 100)  # plays until 1.1
    meter.audio_arrived(1.15, 100)  # 50 ms late, plays until 1.25
    meter.audio_arrived(1.2, 100)  # in time, plays until 1.35
    meter.audio_arrived(1.55, 100)  # 200 ms late
    report = meter.report()
    assert report.num_gaps == 2
    assert report.gap_s == pytest.approx(0.25)
    assert report.longest_gap_s == pytest.approx(0.2)
    assert report.audio_s == pytest.approx(0.4)
    assert report.rtf == pytest.approx(1.55 / 0.4)


def test_without_audio_there_are_no_numbers() -> None:
    meter = PlaybackMeter(RATE)
    meter.text_sent(0.0)
    meter.audio_arrived(1.0, 0)
    report = meter.report()
    assert math.isnan(report.ttfa_s) and math.isnan(report.ttfa_audible_s) and math.isnan(report.rtf)
    assert report.audio_s == 0 and report.num_gaps == 0


def test_an_offset_is_not_sound() -> None:
    meter = PlaybackMeter(RATE)
    meter.text_sent(0.0)
    meter.audio_arrived(0.5, 200, np.full(200, 5000, "<i2").tobytes())
    assert math.isnan(meter.report().ttfa_audible_s)


def test_running_out_of_audio_before_the_end_is_a_gap() -> None:
    meter = PlaybackMeter(RATE)
    meter.text_sent(0.0)
    meter.audio_arrived(1.0, 100)
    assert meter.report().num_gaps == 0
    assert meter.report(until_s=1.09).num_gaps == 0
    assert meter.report(until_s=1.3).longest_gap_s == pytest.approx(0.2)


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(1, 50)), max_size=20), st.floats(0, 20), st.floats(0, 20))
def test_every_sample_is_counted_in_one_interval(chunks: list[tuple[float, int]], one_s: float, other_s: float) -> None:
    meter = PlaybackMeter(RATE)
    now_s = 0.0
    for wait_s, num_samples in chunks:
        now_s += wait_s
        meter.audio_arrived(now_s, num_samples)
    cuts = [0.0, *sorted((one_s, other_s)), 21.0]
    parts = [meter.audio_between_s(begin_s, end_s) for begin_s, end_s in pairwise(cuts)]
    assert sum(parts) == pytest.approx(meter.report().audio_s)


@given(st.lists(st.tuples(st.floats(0, 0.5), st.integers(1, 200)), min_size=1, max_size=30))
def test_playing_time_is_audio_plus_gaps(chunks: list[tuple[float, int]]) -> None:
    """Whatever the arrivals: from first sound to last, the listener hears audio or waits, nothing else."""
    meter = PlaybackMeter(RATE)
    meter.text_sent(0.0)
    now_s, played_until_s = 0.0, None
    for wait_s, num_samples in chunks:
        now_s += wait_s
        meter.audio_arrived(now_s, num_samples)
        played_until_s = max(now_s, now_s if played_until_s is None else played_until_s) + num_samples / RATE
    report = meter.report()
    assert played_until_s is not None
    assert played_until_s - chunks[0][0] == pytest.approx(report.audio_s + report.gap_s, abs=0.001 * len(chunks) + 1e-9)
