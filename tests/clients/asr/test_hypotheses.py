"""Messages of recognizers as hypotheses."""

import json

import pytest

from sonorant.asr.hypotheses import Hypothesis, HypothesisPart
from sonorant.asr.recognizers import Messages


@pytest.mark.parametrize(
    ("message", "hypotheses"),
    [
        ({"partial": "so it"}, [Hypothesis((HypothesisPart("so it"),), 5.0)]),
        ({"partial": "so", "stability": 0.9, "time_ms": 1500}, [Hypothesis((HypothesisPart("so", 0.9),), 1.5)]),
        ({"final": "so it is"}, [Hypothesis((HypothesisPart("so it is"),), 5.0, is_final=True)]),
        (
            {"text": "so it is", "result": [{"word": "so"}]},
            [Hypothesis((HypothesisPart("so it is"),), 5.0, is_final=True)],
        ),
        (
            {
                "results": [
                    {"alternatives": [{"transcript": "to be", "confidence": 0.9}], "stability": 0.9},
                    {"alternatives": [{"transcript": " or not"}], "stability": 0.01},
                    {"alternatives": [{"transcript": " to"}]},
                ]
            },
            [Hypothesis((HypothesisPart("to be", 0.9), HypothesisPart(" or not", 0.01), HypothesisPart(" to")), 5.0)],
        ),
        (
            {
                "results": [
                    {"alternatives": [{"transcript": "yes"}], "isFinal": True},
                    {"alternatives": [{"transcript": " no"}], "is_final": True},
                    {"alternatives": [{"transcript": " per"}], "is_final": False},
                ]
            },
            [
                Hypothesis((HypothesisPart("yes"),), 5.0, is_final=True),
                Hypothesis((HypothesisPart(" no"),), 5.0, is_final=True),
                Hypothesis((HypothesisPart(" per"),), 5.0),
            ],
        ),
        ({"speechEventType": "END_OF_SINGLE_UTTERANCE"}, []),
        ({"results": []}, []),
    ],
)
def test_shapes(message: object, hypotheses: list[Hypothesis]) -> None:
    assert Messages().parse(json.dumps(message), 5.0) == hypotheses


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("so it is", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"final": "a", "time_ms": NaN}', "time_ms is nan, not a number"),
        ('{"final": "a", "time_ms": 1' + "0" * 400 + "}", "not a number"),
        ('["partial"]', "a JSON object is needed"),
        ("{}", "found nothing"),
        ('{"channel": {}}', "found channel"),
        (r'{"final": "a\ud83d"}', "half of a surrogate pair"),
        ('{"partial": 7}', "partial is 7, not a string"),
        ('{"partial": "a", "stability": 2}', "not within 0 to 1"),
        ('{"partial": "a", "time_ms": "now"}', "time_ms is 'now'"),
        ('{"results": {"a": 1}}', "Google"),
        ('{"results": [{"alternatives": "x"}]}', "Google"),
        ('{"results": [{"alternatives": [{"transcript": 1}]}]}', "transcript is 1"),
    ],
)
def test_other_messages_are_refused_with_the_reason(line: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Messages().parse(line, 0.0)
