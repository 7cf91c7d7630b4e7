"""The statistics of an utterance, on a clock of the test."""

import numpy as np
import pytest

from sonorant.engine import PcmChunk, StreamBudget
from sonorant.service.pacing.pacer import Playout
from sonorant.service.utterance.statistics import Statistics
from sonorant.service.utterance.word_times import WordTimes
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import as_written
from tests.service.utterance._support import spec


def test_the_budget_adds_up_on_the_injected_clock() -> None:
    now_s = 100.0
    times = WordTimes(24_000, 1.0, as_written())
    statistics = Statistics("u", spec(FakeEngine()), times, Playout(), lambda: now_s, arrived_s=99.75)
    statistics.text("Hello")
    now_s = 103.0
    budget = StreamBudget(100.5, 0.125, 0.125, 0.25, 0.125, 0.125, 0.125, 0.125)
    statistics.received(PcmChunk(0, 1, np.zeros(1920, np.int16), np.zeros((1, 16), np.int16), budget), 1920)
    statistics.encoded(0.25)
    statistics.encoded(0.5)
    first = statistics.first_budget()
    assert first is not None
    assert (first.opening_ms, first.text_ms, first.encode_ms) == (250.0, 500.0, 750.0)
    assert first.hold_ms == pytest.approx(3000 - 500 - 1000 - 750)
    assert statistics.budget is first
