"""The record of one call: metrics, log lines and spans made from its responses. Text is never recorded.

It looks only at messages of the contract, so it works for every method and whatever implements it.
"""

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from google.rpc import code_pb2, error_details_pb2, status_pb2

from sonorant.service.admission.usage import Usage
from sonorant.service.calls.context import CallContext
from sonorant.service.operations.latency import OF_CALLS, parts
from sonorant.service.operations.metrics import Metrics
from sonorant.service.operations.tracing import Tracer, add_steps, end_span
from sonorant.tts.v1 import audio_pb2, latency_pb2, synthesis_pb2
from sonorant.tts.v1.speak_pb2 import SpeakResponse
from sonorant.tts.v1.text_to_speech_service_pb2 import DecodeResponse, SynthesizeResponse, SynthesizeStreamResponse

if TYPE_CHECKING:
    from opentelemetry.trace import Span

log = logging.getLogger(__name__)

_EARLY = (synthesis_pb2.FINISH_REASON_MAX_AUDIO, synthesis_pb2.FINISH_REASON_RUNAWAY)
_REASON_PREFIX = "FINISH_REASON_"
_GIVEN_UP = "CALL_ENDED"  # the call was over before the utterance was


@dataclass(slots=True)
class _Utterance:
    """An utterance that has begun and is not over."""

    rate_hz: int
    sent_s: float = 0.0  # when the last audio was sent
    first: tuple[latency_pb2.LatencyBudget, int] | None = None  # its first audio's budget, and when it was sent
    span: "Span | None" = None


class CallRecord:
    def __init__(
        self,
        method: str,
        context: CallContext,
        metrics: Metrics,
        usage: Usage,
        tracer: Tracer | None,
        traceparent: str,
    ) -> None:
        self._method = method
        self._ids = {"request_id": context.request_id}
        if context.caller.name:
            self._ids["caller"] = context.caller.name
        self._metrics = metrics
        self._usage = usage
        self._caller = context.caller
        self._tracer = tracer
        self._traceparent = traceparent
        self._start_ns = time.time_ns()
        self._start_s = time.monotonic()
        self._live: dict[str, _Utterance] = {}
        self._silent_from_s = 0.0  # when a listener who plays all audio as it comes will have heard all of it
        self._first: synthesis_pb2.SynthesisStats | None = None  # of the first utterance with audio
        self._early_reason = ""  # of the first utterance that ended before its text
        self._audio_ms = 0
        self._refusal: dict[str, str] = {}  # why the call ended, if with an error

    def response(self, response: Any) -> None:
        """Record a response that is about to be written."""
        match response:
            case SynthesizeResponse():
                self._begin("", response.format.sample_rate_hz, self._start_ns)
                stats = response.stats
                if stats.HasField("first_audio_budget"):
                    first_audio_ns = self._start_ns + stats.first_audio_ms * 1_000_000
                    self._live[""].first = stats.first_audio_budget, first_audio_ns
                self._done("", response.reason, stats)
                self._tell_usage(response.usage)
            case SynthesizeStreamResponse() | DecodeResponse():
                self._payload("", response)
            case SpeakResponse():
                self._payload(response.utterance_id, response)

    def refused(self, status: status_pb2.Status) -> None:
        """Record the status with which the call is about to end."""
        self._refusal = self._told(status)

    def trailers(self) -> tuple[tuple[str, str], ...]:
        """Where the time to the first audio of the call went, for clients that do not look into messages."""
        if (first := self._first) is None:
            return ()
        ended_early = (("x-finish-reason", self._early_reason),) if self._early_reason else ()
        return (
            *ended_early,
            ("x-audio-ms", str(self._audio_ms)),
            ("x-queue-ms", str(first.queue_ms)),
            ("x-first-audio-ms", str(first.first_audio_ms)),
            ("x-generation-ms", str(first.generation_ms)),
            *((f"x-budget-{part.replace('_', '-')}-ms", f"{ms:.1f}") for part, ms in parts(first.first_audio_budget)),
        )

    def end(self, code: int, *, begun: bool) -> None:
        """End the record and its open utterances. A call cancelled before it had begun is counted but not logged."""
        for utterance_id in list(self._live):
            self._over(utterance_id, _GIVEN_UP)
        name = code_pb2.Code.Name(code)
        self._metrics.handled.labels(self._method, name).inc()
        if not begun and code == code_pb2.CANCELLED:
            return
        duration_ms = round((time.monotonic() - self._start_s) * 1000)
        told = {"method": self._method, "duration_ms": duration_ms, **self._ids, **self._refusal, "code": name}
        log.log(logging.WARNING if self._refusal else logging.INFO, "call ended", extra=told)

    def _payload(self, utterance_id: str, response: SpeakResponse | SynthesizeStreamResponse | DecodeResponse) -> None:
        match response.WhichOneof("payload"):
            case "session":
                self._ids["session_id"] = response.session.session_id
            case "started":
                self._begin(utterance_id, response.started.audio.sample_rate_hz, time.time_ns())
            case "audio":
                self._audio(self._live[utterance_id], response.audio)
            case "done":
                failure = response.done.error if response.done.HasField("error") else None
                self._done(utterance_id, response.done.reason, response.done.stats, failure)
                self._tell_usage(response.done.usage)

    def _tell_usage(self, into: synthesis_pb2.Usage) -> None:
        if self._caller.name:
            used = self._usage.of(self._caller)
            into.input_chars, into.audio_ms, into.clones = used.num_chars, used.audio_ms, used.num_clones

    def _begin(self, utterance_id: str, rate_hz: int, start_ns: int) -> None:
        span = self._tracer.begin(self._traceparent, start_ns) if self._tracer else None
        self._live[utterance_id] = _Utterance(rate_hz, span=span)
        self._metrics.active_utterances.inc()

    def _audio(self, utterance: _Utterance, audio: audio_pb2.AudioChunk) -> None:
        now_s = time.monotonic()
        if audio.HasField("budget"):
            utterance.first = audio.budget, time.time_ns()  # evaluated in the end, as a listener waits for this audio
        if utterance.sent_s:
            self._metrics.frame_gap_s.observe(now_s - utterance.sent_s)
            if now_s > self._silent_from_s:
                self._metrics.underruns.inc()
        utterance.sent_s = now_s
        self._silent_from_s = max(now_s, self._silent_from_s) + audio.num_samples / utterance.rate_hz

    def _first_audio(self, utterance: _Utterance, budget: latency_pb2.LatencyBudget, at_ns: int) -> None:
        for part, ms in parts(budget):
            if ms or part not in OF_CALLS:
                self._metrics.budget_s[part].observe(ms / 1000)
        if utterance.span is not None:
            add_steps(utterance.span, parts(budget), at_ns)

    def _told(self, status: status_pb2.Status) -> dict[str, str]:
        """Count a refusal or failure, and return what the log says of it. Messages never quote text."""
        info = error_details_pb2.ErrorInfo()
        known = any(detail.Unpack(info) for detail in status.details)
        code, reason = code_pb2.Code.Name(status.code), info.reason if known else ""
        self._metrics.refusals.labels(code, reason).inc()
        return {"code": code, "error_reason": reason, "error": status.message}

    def _done(
        self,
        utterance_id: str,
        reason: int,
        stats: synthesis_pb2.SynthesisStats,
        failure: status_pb2.Status | None = None,
    ) -> None:
        metrics = self._metrics
        metrics.heals.inc(stats.heals)
        metrics.missed_ends.inc(stats.missed_ends)
        self._usage.add(self._caller, stats.input_chars, stats.sent_ms)
        if reason in _EARLY:
            self._early_reason = self._early_reason or _name(reason)
        if stats.sent_ms:
            self._first = self._first or stats
            self._audio_ms += stats.sent_ms
            metrics.audio_ms.inc(stats.sent_ms)
            metrics.queue_s.observe(stats.queue_ms / 1000)
            metrics.first_audio_s.observe(stats.first_audio_ms / 1000)
        if reason == synthesis_pb2.FINISH_REASON_CANCELLED:
            metrics.cancelled_audio_ms.inc(max(0, stats.audio_ms - stats.sent_ms))
            self._silent_from_s = 0.0  # a barge-in: the listener drops the audio not heard yet
        self._over(
            utterance_id,
            _name(reason),
            chars=stats.input_chars,
            audio_ms=stats.audio_ms,
            sent_ms=stats.sent_ms,
            queue_ms=stats.queue_ms,
            first_audio_ms=stats.first_audio_ms,
            generation_ms=stats.generation_ms,
            **(self._told(failure) if failure is not None else {}),
        )

    def _over(self, utterance_id: str, reason: str, **more: str | int) -> None:
        told: dict[str, str | int] = {**self._ids, "utterance_id": utterance_id, "reason": reason, **more}
        utterance = self._live.pop(utterance_id, None)
        if utterance is not None:  # None: it ended before its turn came
            self._metrics.active_utterances.dec()
            if utterance.first is not None:
                self._first_audio(utterance, *utterance.first)
            if utterance.span is not None:
                end_span(utterance.span, told | {"method": self._method}, failed=reason == "FAILED")
        self._metrics.utterances.labels(reason).inc()
        log.log(logging.WARNING if "error" in told else logging.INFO, "utterance ended", extra=told)


def _name(reason: int) -> str:
    return str(synthesis_pb2.FinishReason.Name(reason)).removeprefix(_REASON_PREFIX)
