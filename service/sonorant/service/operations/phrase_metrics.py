"""Metrics of the phrase cache, read at each scrape."""

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
            "tts_phrase_misses", "Cacheable segments that were made, as the cache lacked them.", phrases.num_misses
        )
        yield GaugeMetricFamily("tts_phrases", "Phrases in the cache.", len(phrases))
        yield GaugeMetricFamily(
            "tts_phrase_bytes", "Bytes of the phrase cache, segments being spoken included.", phrases.num_bytes
        )
