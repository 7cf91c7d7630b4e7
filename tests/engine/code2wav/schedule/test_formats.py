"""The codec's number format where the settings leave it open: the fastest that agrees with float32."""

import math

import numpy as np
import pytest

from sonorant.engine.code2wav.schedule.formats import agreement_db, choose_format
from sonorant.engine.config import CodecDtypeName

SPEECH = np.sin(np.arange(1000, dtype=np.float32))


@pytest.mark.parametrize(
    "agreements, chosen, why",
    [
        ({"float16": 54.0}, "float16", "float16 agrees with float32 to 54 dB"),
        (
            {"float16": 31.2, "tf32": 63.0},
            "tf32",
            "float16 agrees with float32 to only 31 dB; tf32 agrees with float32 to 63 dB",
        ),
        (
            {"float16": -math.inf, "tf32": 20.0},
            "float32",
            "float16 overflows; tf32 agrees with float32 to only 20 dB",
        ),
    ],
)
def test_the_fastest_that_agrees(agreements: dict[CodecDtypeName, float], chosen: str, why: str) -> None:
    assert choose_format(lambda name: agreements[name]) == (chosen, why)


def test_agreement_is_signal_to_noise() -> None:
    assert agreement_db(SPEECH * np.float32(1.01), SPEECH) == pytest.approx(40.0, abs=0.01)
    assert agreement_db(SPEECH, SPEECH) == math.inf


def test_what_is_no_number_agrees_with_nothing() -> None:
    broken = SPEECH.copy()
    broken[3] = np.inf
    assert agreement_db(broken, SPEECH) == agreement_db(SPEECH, broken) == -math.inf


def test_silence_agrees_with_silence_alone() -> None:
    silence = np.zeros_like(SPEECH)
    assert agreement_db(silence, silence) == math.inf
    assert agreement_db(SPEECH, silence) == -math.inf
