import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sonorant.training.evaluation.acoustics import envelope, envelope_distance, formant_shift, median_pitch_hz
from sonorant.training.evaluation.clones import Voice, pick, semitones
from tests.training.vowels import vowel


@settings(max_examples=30)
@given(st.floats(75, 300), st.floats(0.8, 1.25))
@example(156.125, 1.25)  # its period ends between two samples, twice its period does not: once taken for an octave less
@example(251.9, 1.2)
def test_pitch_is_found(pitch_hz: float, ratio: float) -> None:
    assert abs(semitones(pitch_hz, median_pitch_hz(vowel(pitch_hz, ratio)))) < 0.5


def test_noise_and_silence_have_no_pitch() -> None:
    noise = np.random.default_rng(0).normal(0, 1000, 8000).astype(np.int16)
    assert np.isnan(median_pitch_hz(noise))
    assert np.isnan(median_pitch_hz(np.zeros(8000, np.int16)))


@pytest.mark.parametrize("ratio", [0.84, 1.0, 1.19])
def test_a_shift_of_the_formants_is_found_whatever_the_pitch(ratio: float) -> None:
    shift = formant_shift(envelope(vowel(110)), envelope(vowel(140, ratio)))
    assert abs(shift - 12 * np.log2(ratio)) < 0.8


def test_the_likest_reference_is_picked() -> None:
    def voice(pitch_hz: float, ratio: float) -> Voice:
        return Voice(pitch_hz, envelope(vowel(pitch_hz, ratio)))

    references = [voice(110, 0.9), voice(110, 1.2), voice(200, 0.9)]
    assert pick(voice(115, 1.18), references, by_pitch=False) == 1
    assert pick(voice(190, 0.9), references, by_pitch=True) == 2
    assert pick(voice(112, 0.9), references, by_pitch=True) == 0
    assert envelope_distance(references[0].envelope, references[0].envelope) == 0
