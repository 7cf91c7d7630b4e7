"""Metrics of the owner: how often processes had to be replaced. Read at each scrape."""

from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector


class RestartCollector(Collector):
    def __init__(self, workers: Callable[[], Sequence[tuple[str, int]]], server_processes: Callable[[], int]) -> None:
        """`workers`: of each pair, its model and how often its workers were replaced."""
        self._workers = workers
        self._server_processes = server_processes

    def collect(self) -> Iterator[Metric]:
        workers = CounterMetricFamily(
            "tts_worker_restarts", "How often a pair's workers had to be replaced.", labels=["pair", "model"]
        )
        for number, (model, count) in enumerate(self._workers()):
            workers.add_metric([str(number), model], count)
        yield workers
        yield CounterMetricFamily(
            "tts_server_process_restarts",
            "How often a server process had to be replaced.",
            value=self._server_processes(),
        )
