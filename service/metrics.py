"""What is counted and measured, under the names that dashboards and autoscalers use. Knows no calls."""

from collections.abc import Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from engine import ROW_BUCKETS, EnginePool, EngineState

_SECONDS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0)


class Metrics:
    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.first_audio_s = Histogram(
            "tts_first_audio_seconds",
            "First speakable text of an utterance at the service to its first audio written.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.frame_gap_s = Histogram(
            "tts_frame_gap_seconds",
            "Between two audio messages of an utterance, pacing and waits for text included.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.underruns = Counter(
            "tts_underruns",
            "Pauses that a listener without a buffer heard within an utterance, those for want of text included.",
            registry=registry,
        )
        self.active_utterances = Gauge("tts_active_utterances", "Begun and not over yet.", registry=registry)
        self.utterances = Counter("tts_utterances", "Over, by how they ended.", ["reason"], registry=registry)
        self.queue_s = Histogram(
            "tts_queue_seconds",
            "Wait of an utterance for a slot of the engine.",
            buckets=(0.001, *_SECONDS),
            registry=registry,
        )
        self.budget_s = Histogram(
            "tts_budget_seconds",
            "Parts of tts_first_audio_seconds, as in LatencyBudget.",
            ["part"],
            buckets=(0.0005, 0.001, 0.002, 0.004, 0.008, 0.015, 0.03, 0.06, 0.12, 0.25, 0.5, 1.0, 2.5, 10.0),
            registry=registry,
        )
        self.audio_ms = Counter("tts_audio_ms", "Audio written to callers.", registry=registry)
        self.cancelled_audio_ms = Counter(
            "tts_cancelled_audio_ms",
            "Audio that was made for an utterance and not written to its caller, because it was cancelled.",
            registry=registry,
        )
        self.handled = Counter("grpc_server_handled", "Calls that are over.", ["method", "code"], registry=registry)

    def follow(self, engine: EnginePool) -> None:
        """Tell how busy the engine is, as of when it is asked."""
        self.registry.register(_EngineCollector(engine))


class _EngineCollector(Collector):
    def __init__(self, engine: EnginePool) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        pairs = self._engine.pairs()
        slots = sum(pair.num_slots for pair in pairs)
        used = sum(min(pair.stats.num_streams, pair.num_slots) for pair in pairs)
        queued = sum(pair.stats.num_streams for pair in pairs) - used
        backlog = sum(pair.stats.backlog for pair in pairs)
        yield GaugeMetricFamily("tts_slots", "Streams that the talkers step together.", value=slots)
        yield GaugeMetricFamily("tts_slots_used", "Slots that streams have, or are about to take.", value=used)
        yield GaugeMetricFamily("tts_slots_used_ratio", "tts_slots_used / tts_slots.", value=used / slots)
        yield GaugeMetricFamily("tts_queued_streams", "Streams that wait for a slot.", value=queued)
        yield GaugeMetricFamily(
            "tts_engine_backlog", "Commands that wait for room on the rings to the talkers.", value=backlog
        )
        labels = ["pair", "model"]
        ready = GaugeMetricFamily("tts_pair_ready", "Whether the worker pair takes streams.", labels=labels)
        streams = GaugeMetricFamily("tts_pair_streams", "Live streams of the worker pair.", labels=labels)
        rings = GaugeMetricFamily("tts_ring_bytes", "In flight between the processes.", labels=["pair", "ring"])
        labels = ["pair", "worker"]
        rows = HistogramMetricFamily("tts_batch_rows", "Streams in one step of a worker.", labels=labels)
        busy = CounterMetricFamily("tts_busy_seconds", "Time a worker spent in steps.", labels=labels)
        for number, pair in enumerate(pairs):
            ready.add_metric([str(number), pair.model], pair.state is EngineState.READY)
            streams.add_metric([str(number), pair.model], pair.stats.num_streams)
            for name, num_bytes in zip(("commands", "frames", "pcm"), pair.stats.ring_bytes, strict=True):
                rings.add_metric([str(number), name], num_bytes)
            for name, work in pair.stats.work.items():
                buckets = zip((*map(float, ROW_BUCKETS), "+Inf"), accumulate(work.num_steps), strict=True)
                cumulated = [(str(upper), count) for upper, count in buckets]
                rows.add_metric([str(number), name], cumulated, work.num_rows)
                busy.add_metric([str(number), name], work.busy_s)
        yield from (ready, streams, rings, rows, busy)
