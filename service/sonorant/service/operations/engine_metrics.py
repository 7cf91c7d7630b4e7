"""Metrics of the engine and its workers, read at each scrape. Knows no calls."""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from sonorant.engine import PROMPT_ROW_BUCKETS, ROW_BUCKETS, STEP_S_BUCKETS, EnginePool, EngineState, Work


class EngineCollector(Collector):
    def __init__(self, engine: EnginePool) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        pairs = self._engine.pairs()
        slots = sum(pair.num_slots for pair in pairs)
        used = sum(min(pair.stats.num_streams, pair.num_slots) for pair in pairs)
        queued = sum(pair.stats.num_streams for pair in pairs) - used
        backlog = sum(pair.stats.backlog for pair in pairs)
        yield GaugeMetricFamily("tts_slots", "Streams that the talkers step together.", value=slots)
        yield GaugeMetricFamily("tts_slots_used", "Slots that streams have or are about to take.", value=used)
        yield GaugeMetricFamily("tts_slots_used_ratio", "tts_slots_used / tts_slots.", value=used / slots)
        yield GaugeMetricFamily("tts_queued_streams", "Streams that wait for a slot.", value=queued)
        recordings = self._engine.num_recordings
        yield GaugeMetricFamily(
            "tts_queued_recordings", "Recordings that are being encoded or wait to be.", value=recordings
        )
        yield GaugeMetricFamily(
            "tts_engine_backlog", "Commands that wait for room on the rings to the talkers.", value=backlog
        )
        labels = ["pair", "model"]
        ready = GaugeMetricFamily("tts_pair_ready", "Whether the worker pair takes streams.", labels=labels)
        streams = GaugeMetricFamily("tts_pair_streams", "Live streams of the worker pair.", labels=labels)
        rings = GaugeMetricFamily("tts_ring_bytes", "Bytes in flight on the ring.", labels=["pair", "ring"])
        workers = [(kind(name, help, labels=["pair", "worker"]), told) for kind, name, help, told in _OF_WORKERS]
        for number, pair in enumerate(pairs):
            ready.add_metric([str(number), pair.model], pair.state is EngineState.READY)
            streams.add_metric([str(number), pair.model], pair.stats.num_streams)
            for name, num_bytes in zip(("commands", "frames", "pcm"), pair.stats.ring_bytes, strict=True):
                rings.add_metric([str(number), name], num_bytes)
            for name, work in pair.stats.work.items():
                for family, told in workers:
                    family.add_metric([str(number), name], *told(work))
        yield from (ready, streams, rings, *(family for family, _ in workers))


def _cumulated(upper_ends: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    """Return Prometheus buckets: each counts all values up to its end. `counts` has one more, for larger values."""
    return [
        (str(upper), float(count))
        for upper, count in zip((*map(float, upper_ends), "+Inf"), accumulate(counts), strict=True)
    ]


_HISTOGRAM, _COUNTER = HistogramMetricFamily, CounterMetricFamily
# What the workers of all pairs have done since they started: kind, name and help, and what is told of a worker.
_OF_WORKERS: tuple[tuple[type[Any], str, str, Callable[[Work], tuple[Any, ...]]], ...] = (
    (
        *(_HISTOGRAM, "tts_batch_rows", "Streams in one step of a worker."),
        lambda work: (_cumulated(ROW_BUCKETS, work.num_steps), work.num_rows),
    ),
    (
        *(_HISTOGRAM, "tts_step_seconds", "How long a step of a worker took."),
        lambda work: (_cumulated(STEP_S_BUCKETS, work.step_times), work.busy_s),
    ),
    (
        *(_HISTOGRAM, "tts_prompt_rows", "Prompt rows in one step of a talker, for steps that had any."),
        lambda work: (_cumulated(PROMPT_ROW_BUCKETS, work.prompt_steps), work.num_prompt_rows),
    ),
    (
        *(_COUNTER, "tts_shared_prompt_rows", "Prompt rows that were in the KV cache already."),
        lambda work: (work.num_shared_rows,),
    ),
    (_COUNTER, "tts_pass_rows", "Rows of the network's passes.", lambda work: (work.passes.num_rows,)),
    (_COUNTER, "tts_padding_rows", "Padding rows in these passes.", lambda work: (work.passes.num_padding_rows,)),
    (_COUNTER, "tts_graph_passes", "Passes that ran as a CUDA graph.", lambda work: (work.passes.num_graphs,)),
    (_COUNTER, "tts_eager_passes", "Passes that ran kernel by kernel.", lambda work: (work.passes.num_eager,)),
    (_COUNTER, "tts_busy_seconds", "Time a worker spent in steps.", lambda work: (work.busy_s,)),
)
# Families that several server processes with the same workers report alike.
OF_ALL_PROCESSES = frozenset(
    {
        *("tts_slots", "tts_slots_used", "tts_slots_used_ratio", "tts_queued_streams"),
        *("tts_pair_ready", "tts_pair_streams", "tts_ring_bytes"),
        *(name for _, name, _, _ in _OF_WORKERS),
    }
)
