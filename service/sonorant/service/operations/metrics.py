"""The server's metrics, under the names that dashboards and autoscalers use. Knows no calls."""

import math
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

from sonorant.engine import EnginePool
from sonorant.service.operations.engine_metrics import EngineCollector
from sonorant.service.operations.latency import PARTS
from sonorant.service.operations.phrase_metrics import PhraseCollector, PhraseCounts

_SECONDS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0)


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        histogram = partial(Histogram, registry=self.registry)
        counter, gauge = partial(Counter, registry=self.registry), partial(Gauge, registry=self.registry)
        self.first_audio_s = histogram(
            "tts_first_audio_seconds",
            "Time from an utterance's first speakable text at the service to its first audio written.",
            buckets=_SECONDS,
        )
        self.frame_gap_s = histogram(
            "tts_frame_gap_seconds",
            "Time between two audio messages of an utterance, pacing and waits for text included.",
            buckets=_SECONDS,
        )
        self.underruns = counter(
            "tts_underruns",
            "Pauses within an utterance for a listener without a buffer, also those while text was missing.",
        )
        self.active_utterances = gauge("tts_active_utterances", "Utterances begun and not over.")
        self.waiting_utterances = gauge(
            "tts_waiting_utterances", "Utterances that wait for a place, as the engine is full."
        )
        self.utterances = counter("tts_utterances", "Utterances that ended, by reason.", ["reason"])
        self.queue_s = histogram(
            "tts_queue_seconds", "Time that an utterance waited for a slot of the engine.", buckets=(0.001, *_SECONDS)
        )
        budget_s = histogram(
            "tts_budget_seconds",
            "Parts of tts_first_audio_seconds, as in LatencyBudget.",
            ["part"],
            buckets=(0.0005, 0.001, 0.002, 0.004, 0.008, 0.015, 0.03, 0.06, 0.12, 0.25, 0.5, 1.0, 2.5, 10.0),
        )
        self.budget_s = {part: budget_s.labels(part) for part in PARTS}
        self.audio_ms = counter("tts_audio_ms", "Audio written to callers, in ms.")
        self.key_chars = counter("tts_key_chars", "Characters of ended utterances, by name of the API key.", ["key"])
        self.key_audio_ms = counter("tts_key_audio_ms", "Audio written in ms, by name of the API key.", ["key"])
        self.key_clones = counter("tts_key_clones", "Recordings cloned, by name of the API key.", ["key"])
        self.cancelled_audio_ms = counter(
            "tts_cancelled_audio_ms",
            "Audio in ms that was made but not written to its caller, because the utterance was cancelled.",
        )
        self.sessions = gauge("tts_sessions", "Synthesis RPCs that have a place.")
        self.sessions_used_ratio = gauge(
            "tts_sessions_used_ratio", "tts_sessions / tts_sessions_limit, of all server processes."
        )
        self.sessions_limit = gauge("tts_sessions_limit", "Places for synthesis RPCs.")
        self.database_up = gauge("tts_database_up", "0 while the database of --voices-url cannot be reached, else 1.")
        self.database_up.set(1)
        self.api_keys_up = gauge("tts_api_keys_up", "0 while the changed file of --api-keys has a fault, else 1.")
        self.certificate_expires_s = gauge(
            "tts_certificate_expires_timestamp_seconds",
            "When the certificate of --tls-certificate expires; +Inf without TLS.",
        )
        self.certificate_expires_s.set(math.inf)
        self.heals = counter("tts_heals", "Times that a model no longer spoke its text and was set back.")
        self.missed_ends = counter("tts_missed_ends", "Segments that a model spoke and did not end by itself.")
        self.refusals = counter(
            "tts_refusals", "Calls and utterances refused or failed, by reason.", ["code", "reason"]
        )
        self.handled = counter("grpc_server_handled", "Calls that ended.", ["method", "code"])

    async def text(self) -> bytes:
        """All metrics in the Prometheus format."""
        return generate_latest(self.registry)

    def follow(self, engine: EnginePool) -> None:
        """Add the engine's metrics, read at each scrape."""
        self.registry.register(EngineCollector(engine))

    def follow_phrases(self, phrases: PhraseCounts) -> None:
        """Add the phrase cache's metrics, read at each scrape."""
        self.registry.register(PhraseCollector(phrases))
