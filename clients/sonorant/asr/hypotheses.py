"""What a recognizer believes was said, and its messages in our own format and those of Vosk and Google. Pure;
docs/asr.md has the formats."""

import json
from dataclasses import dataclass
from typing import Any

SHAPES = '{"partial": "..."}, {"final": "..."}, or a message of a recognizer that docs/asr.md names'
MAX_NUMBER = 2**53  # JSON's may have any length, and Python's JSON has NaN


@dataclass(frozen=True, slots=True)
class HypothesisPart:
    """A piece of a hypothesis, and how sure the recognizer is that it will not change (0 to 1; None = unknown)."""

    text: str
    stability: float | None = None


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """Everything that the recognizer believes was said since the last final hypothesis."""

    parts: tuple[HypothesisPart, ...]
    time_s: float  # on any clock that all hypotheses of a stream share
    is_final: bool = False  # True = it will not change any more; the next hypothesis begins a new segment

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts)


def parse_object(line: str) -> dict[str, Any]:
    """Raises ValueError."""
    try:
        message = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"not JSON ({error})") from error
    if not isinstance(message, dict):
        raise ValueError(f"a JSON object is needed: {SHAPES}")
    return message


def parse_fields(message: dict[str, Any], now_s: float) -> list[Hypothesis]:
    """Return the hypotheses in a message of ours, of Vosk or of Google; see `recognizers.Messages.parse`."""
    time_ms = message.get("time_ms")
    time_s = now_s if time_ms is None else _number(time_ms, "time_ms") / 1000
    if "results" in message or "speechEventType" in message:
        return _google(message, time_s)
    for key, is_final in (("partial", False), ("final", True), ("text", True)):
        if key in message:
            stability = message.get("stability")
            part = HypothesisPart(text_of(message[key], key), None if stability is None else _stability(stability))
            return [Hypothesis((part,), time_s, is_final)]
    raise ValueError(f"found {', '.join(message) or 'nothing'}; one of these is needed: {SHAPES}")


def _google(message: dict[str, Any], time_s: float) -> list[Hypothesis]:
    """StreamingRecognizeResponse as JSON: results follow each other in the audio, the final ones first."""
    hypotheses: list[Hypothesis] = []
    parts: list[HypothesisPart] = []
    try:
        for result in message.get("results", []):
            alternatives = result.get("alternatives")
            text = text_of(alternatives[0].get("transcript", ""), "transcript") if alternatives else ""
            if result.get("isFinal") or result.get("is_final"):
                hypotheses.append(Hypothesis((HypothesisPart(text),), time_s, is_final=True))
            else:
                stability = result.get("stability")
                parts.append(HypothesisPart(text, None if stability is None else _stability(stability)))
    except (AttributeError, LookupError, TypeError) as error:
        raise ValueError(f"results is not Google's list of alternatives with transcripts ({error})") from error
    if parts:
        hypotheses.append(Hypothesis(tuple(parts), time_s))
    return hypotheses


def text_of(value: object, name: str) -> str:
    """Raises ValueError unless it is a string that has a meaning."""
    if not isinstance(value, str):
        raise ValueError(f"{name} is {value!r}, not a string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} is {value!r}: half of a surrogate pair is not a character") from None
    return value


def _number(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < MAX_NUMBER:
        raise ValueError(f"{name} is {value!r}, not a number")
    return float(value)


def _stability(value: object) -> float:
    stability = _number(value, "stability")
    if not 0 <= stability <= 1:
        raise ValueError(f"stability is {stability:g}, not within 0 to 1")
    return stability
