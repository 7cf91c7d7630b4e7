import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonorant.service.audio.stretch import Stretcher
from tests.service.sounds import cuts, level_db, main_frequency_hz, noise, same_however_cut, through, voiced

SPEEDS = (0.5, 0.8, 0.9, 1.1, 1.25, 1.5, 2.0)


@given(speed=st.floats(0.5, 2.0), length=st.integers(0, 6000), where=cuts())
@settings(max_examples=60)
def test_it_does_not_matter_how_the_input_is_cut(speed: float, length: int, where: list[int]) -> None:
    same_however_cut(lambda: Stretcher(speed, 24_000), noise(length, length), where)


@given(speed=st.floats(0.5, 2.0), length=st.integers(0, 20_000))
@settings(max_examples=60)
def test_length_is_exact(speed: float, length: int) -> None:
    assert len(through(Stretcher(speed, 24_000), noise(length))) == math.ceil(length / speed)


@pytest.mark.parametrize("speed", SPEEDS)
@pytest.mark.parametrize("pitch_hz", (75, 120, 210, 400))
def test_pitch_and_level_are_kept_and_pieces_meet_without_clicks(speed: float, pitch_hz: float) -> None:
    sound = voiced(pitch_hz, 48_000)
    sound[-2400:] = sound[-2400:] * np.linspace(1, 0, 2400)
    out = through(Stretcher(speed, 24_000), sound)
    assert abs(main_frequency_hz(out) - pitch_hz) < 0.02 * pitch_hz
    assert abs(level_db(out) - level_db(sound)) < 0.5
    # A click is a bend in the waveform sharper than any of the sound itself.
    assert np.abs(np.diff(out.astype(int), 2)).max() <= 1.2 * np.abs(np.diff(sound.astype(int), 2)).max()


@pytest.mark.parametrize("speed", SPEEDS)
def test_sound_begins_as_it_is_and_silence_stays_silent(speed: float) -> None:
    sound = voiced(150, 4800)
    assert np.array_equal(Stretcher(speed, 24_000).push(sound)[:288], sound[:288])
    assert not through(Stretcher(speed, 24_000), np.zeros(9600, np.int16)).any()


@pytest.mark.parametrize("speed", SPEEDS)
def test_output_keeps_up_with_the_input(speed: float) -> None:
    """Within a hop, and the 20 ms of input that a hop may look ahead."""
    stretcher, num_out = Stretcher(speed, 24_000), 0
    for num_in in range(1920, 48_000, 1920):
        num_out += len(stretcher.push(noise(1920, num_in)))
        assert num_out >= (num_in - 480) / speed - 288


def test_no_speed_is_no_change() -> None:
    sound = voiced(150, 9600)
    assert np.array_equal(through(Stretcher(1.0, 24_000), sound), sound)
