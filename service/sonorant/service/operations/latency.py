"""The latency budget of an utterance's first audio: the engine's times and the service's own. Pure."""

from collections.abc import Iterator
from dataclasses import fields

from sonorant.engine import NOTHING_SPENT, Spent, StreamBudget
from sonorant.tts.v1 import latency_pb2

OF_CALLS = ("opening", "recording_wait", "recording_decode", "recording_encode")  # 0 for most utterances
_OF_ENGINE = [each.name.removesuffix("_s") for each in fields(StreamBudget)[1:]]  # the first one is no duration
PARTS: tuple[str, ...] = tuple(field.name.removesuffix("_ms") for field in latency_pb2.LatencyBudget.DESCRIPTOR.fields)


def latency_budget(
    first_text_s: float,
    engine: StreamBudget,
    encode_s: float,
    sent_s: float,
    arrived_s: float | None = None,
    recording: Spent = NOTHING_SPENT,
) -> latency_pb2.LatencyBudget:
    """Return the budget. `engine`: of the stream that was heard first; `encode_s`: a duration; `arrived_s`: when the
    call arrived with which the text came; `recording`: what its recording took. All times are of one clock.
    """
    if arrived_s is None:
        recording = NOTHING_SPENT
    recording_s = recording.waited_s + recording.decoded_s + recording.encoded_s
    text_s = engine.opened_s - first_text_s
    hold_s = sent_s - engine.opened_s - engine.total_s - encode_s
    return latency_pb2.LatencyBudget(
        opening_ms=0.0 if arrived_s is None else max(0.0, first_text_s - arrived_s - recording_s) * 1000,
        recording_wait_ms=recording.waited_s * 1000,
        recording_decode_ms=recording.decoded_s * 1000,
        recording_encode_ms=recording.encoded_s * 1000,
        text_ms=text_s * 1000,
        **{f"{part}_ms": getattr(engine, f"{part}_s") * 1000 for part in _OF_ENGINE},
        encode_ms=encode_s * 1000,
        hold_ms=hold_s * 1000,
    )


def parts(budget: latency_pb2.LatencyBudget) -> Iterator[tuple[str, float]]:
    """Yield the name and the milliseconds of each part, in order."""
    for part in PARTS:
        yield part, getattr(budget, f"{part}_ms")
