"""Metrics for Prometheus. Several processes on one port count into shared files, and each reports the sum of all."""

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from sonorant.gateway.shared_counts import SHARED_DIR_VARIABLE

_SECONDS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0)


class GatewayMetrics:
    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self.requests = Counter(
            "gateway_requests", "HTTP requests that have ended.", ["door", "status"], registry=registry
        )
        self.refusals = Counter(
            "gateway_refusals",
            "HTTP requests that were refused, by the code that the caller got.",
            ["door", "status", "code"],
            registry=registry,
        )
        self.certificate_expires_s = Gauge(
            "gateway_certificate_expires_timestamp_seconds",
            "When the certificate of --tls-certificate expires; +Inf without TLS.",
            registry=registry,
            multiprocess_mode="livemin",
        )
        self.certificate_expires_s.set(math.inf)
        self._first_audio_s = Histogram(
            "gateway_first_audio_seconds",
            "From the request (or its first text) to the first audio from the server.",
            ["door"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._audio_bytes = Counter(
            "gateway_audio_bytes", "Audio from the servers, before encoding.", ["door"], registry=registry
        )
        self._streams = Gauge(
            "gateway_streams", "Utterances being spoken.", ["door"], registry=registry, multiprocess_mode="livesum"
        )
        self.sockets = Gauge(
            "gateway_sockets",
            "WebSockets and Wyoming connections open.",
            ["door"],
            registry=registry,
            multiprocess_mode="livesum",
        )

    def exposition(self) -> bytes:
        if SHARED_DIR_VARIABLE not in os.environ:
            return generate_latest(self._registry)
        everybody = CollectorRegistry()
        MultiProcessCollector(everybody)  # type: ignore[no-untyped-call]
        return generate_latest(everybody)

    @contextmanager
    def speaking(self, door: str) -> Iterator["Spoken"]:
        """A context for the time in which an utterance is spoken."""
        streams = self._streams.labels(door)
        streams.inc()
        try:
            yield Spoken(self._first_audio_s.labels(door), self._audio_bytes.labels(door))
        finally:
            streams.dec()


class Spoken:
    """Measures one utterance, from its creation on."""

    def __init__(self, first_audio_s: Histogram, audio_bytes: Counter) -> None:
        self._first_audio_s: Histogram | None = first_audio_s
        self._audio_bytes = audio_bytes
        self._begin_s = time.monotonic()

    def audio(self, num_bytes: int) -> None:
        self._audio_bytes.inc(num_bytes)
        if self._first_audio_s is not None and num_bytes:
            self._first_audio_s.observe(time.monotonic() - self._begin_s)
            self._first_audio_s = None
