"""One OpenTelemetry span per utterance, sent to a collector. A span per session would say little and end late.

A span is part of the caller's trace if the call came with a `traceparent`.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from sonorant.service import __version__

if TYPE_CHECKING:
    from opentelemetry.trace import Span

EXPORT_TIMEOUT_S = 5.0


class TracingMissing(Exception):
    """The packages of OpenTelemetry are not installed."""


class Tracer:
    """Makes spans, which a thread of the SDK sends in batches."""

    def __init__(self, endpoint: str) -> None:
        """`endpoint`: URL of a collector that takes OTLP over HTTP. Raises TracingMissing."""
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError as error:
            raise TracingMissing("--traces needs OpenTelemetry: pip install 'sonorant-server[otel]'") from error
        resource = Resource.create({"service.name": "sonorant", "service.version": __version__})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint, timeout=EXPORT_TIMEOUT_S)))
        self._tracer = self._provider.get_tracer("sonorant")
        self._propagator = TraceContextTextMapPropagator()

    def begin(self, traceparent: str, start_ns: int) -> "Span":
        parent = self._propagator.extract({"traceparent": traceparent})
        return self._tracer.start_span("utterance", parent, start_time=start_ns)

    def close(self) -> None:
        """Send the remaining spans. Blocks, for a while if the collector does not answer."""
        self._provider.shutdown()


def add_steps(span: "Span", steps: Iterable[tuple[str, float]], end_ns: int) -> None:
    """Add an event at the end of each step. `steps`: names and milliseconds in order; the last ends at `end_ns`."""
    steps = [*steps]
    at_ns = end_ns - sum(ms for _, ms in steps) * 1e6
    for name, ms in steps:
        at_ns += ms * 1e6
        span.add_event(name, {"sonorant.ms": ms}, timestamp=round(at_ns))


def end_span(span: "Span", attributes: Mapping[str, str | int], *, failed: bool) -> None:
    from opentelemetry.trace import StatusCode

    span.set_attributes({f"sonorant.{name}": value for name, value in attributes.items()})
    if failed:
        span.set_status(StatusCode.ERROR)
    span.end()
