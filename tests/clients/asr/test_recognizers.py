"""Messages of recognizers, as they send them, become the same words, each once."""

import json
from typing import Any

import pytest

from sonorant.asr.commit import CommitPolicy
from sonorant.asr.hypotheses import Hypothesis, HypothesisPart
from sonorant.asr.recognizers import Messages


def deepgram(text: str, *, is_final: bool = False) -> dict[str, Any]:
    return {
        "type": "Results",
        "channel_index": [0, 1],
        "start": 0.0,
        "is_final": is_final,
        "speech_final": is_final,
        "channel": {"alternatives": [{"transcript": text, "confidence": 0.99, "words": []}]},
    }


def turn(order: int, final: str, later: str = "", *, ends: bool = False, formatted: bool = False) -> dict[str, Any]:
    words = [{"text": word, "word_is_final": True} for word in final.split()]
    words += [{"text": word, "word_is_final": False} for word in later.split()]
    return {
        "type": "Turn",
        "turn_order": order,
        "turn_is_formatted": formatted,
        "end_of_turn": ends,
        "transcript": final,
        "end_of_turn_confidence": 0.5,
        "words": words,
        "utterance": "",
    }


def segments(*texts: str, num_completed: int) -> dict[str, Any]:
    made = [
        {"start": f"{number:.3f}", "end": f"{number + 1:.3f}", "text": f" {text}", "completed": number < num_completed}
        for number, text in enumerate(texts)
    ]
    return {"uid": "u", "segments": made}


DEEPGRAM = [
    {"type": "Metadata"},
    deepgram("good"),
    deepgram("good morning to"),
    deepgram("good morning to you", is_final=True),
]
ASSEMBLYAI = [
    {"type": "Begin", "id": "x", "expires_at": 1},
    turn(0, "", "good"),
    turn(0, "good morning", "to"),
    turn(0, "good morning to you", ends=True),
    turn(0, "Good morning to you.", ends=True, formatted=True),
    {"type": "Termination"},
]
WHISPER_LIVE = [
    {"uid": "u", "message": "SERVER_READY", "backend": "faster_whisper"},
    segments("good morning", num_completed=0),
    segments("good morning", "to", num_completed=1),
    segments("good morning", "to you", num_completed=1),
    segments("good morning", "to you", num_completed=2),
]
WHISPER_STREAMING = ["0 800 good morning", "800 1200  to", "1200 1720  you."]


@pytest.mark.parametrize("messages", [DEEPGRAM, ASSEMBLYAI, WHISPER_LIVE, WHISPER_STREAMING])
def test_every_word_is_spoken_once(messages: list[Any]) -> None:
    reader, policy = Messages(), CommitPolicy(agreement=1)
    spoken = []
    for message in messages:
        line = message if isinstance(message, str) else json.dumps(message)
        for hypothesis in reader.parse(line, 0.0):
            spoken += [word.text.strip().rstrip(".") for word in policy.feed(hypothesis)]
    assert spoken == ["good", "morning", "to", "you"]
    assert policy.num_contradicted == 0


def test_final_words_of_assemblyai_are_stable() -> None:
    (hypothesis,) = Messages().parse(json.dumps(turn(3, "good", "moaning")), 2.0)
    assert hypothesis == Hypothesis((HypothesisPart("good", 1.0), HypothesisPart(" moaning", 0.0)), 2.0)


@pytest.mark.parametrize(
    "message", [{"type": "Results", "channel": {}}, {"type": "Turn"}, {"uid": "u", "segments": [{"end": "1"}]}]
)
def test_other_shapes_are_refused(message: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="another shape"):
        Messages().parse(json.dumps(message), 0.0)
