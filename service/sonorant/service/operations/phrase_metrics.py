"""The phrase cache, read at each scrape."""

from collections.abc import Iterable
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class PhraseCounts(Protocol):
    num_hits: int
    num_misses: int

    @property
    def num_bytes(self) -> int: ...

    def __len__(self) -> int: ...


class PhraseCollector(Collector):
    def __init__(self, phrases: PhraseCounts) -> None:
        self._phrases = phrases

    def collect(self) -> Iterable[Metric]:
        phrases = self._phrases
        yield CounterMetricFamily("tts_phrase_hits", "Segments sent from the phrase cache.", phrases.num_hits)
        yield CounterMetricFamily(
            "tts_phrase_misses", "Segments that could have been in the phrase cache, and were made.", phrases.num_misses
        )
        yield GaugeMetricFamily("tts_phrases", "In the phrase cache.", len(phrases))
        yield GaugeMetricFamily(
            "tts_phrase_bytes", "Of the phrase cache, with what is spoken and may be kept.", phrases.num_bytes
        )
