import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonorant.service.audio.resample import Resampler
from tests.service.sounds import cuts, level_db, noise, same_however_cut, snr_db, through, tone

RATES_HZ = (8_000, 16_000, 22_050, 44_100, 48_000)


@given(rate_hz=st.sampled_from(RATES_HZ), length=st.integers(0, 6000), where=cuts())
@settings(max_examples=60)
def test_it_does_not_matter_how_the_input_is_cut(rate_hz: int, length: int, where: list[int]) -> None:
    same_however_cut(lambda: Resampler(24_000, rate_hz), noise(length, length), where)


@pytest.mark.parametrize("rate_hz", RATES_HZ)
def test_single_samples_give_the_same(rate_hz: int) -> None:
    same_however_cut(lambda: Resampler(24_000, rate_hz), noise(400), range(400))


@given(from_hz=st.sampled_from((16_000, 24_000)), rate_hz=st.sampled_from(RATES_HZ), length=st.integers(0, 3000))
@settings(max_examples=60)
def test_length_is_exact(from_hz: int, rate_hz: int, length: int) -> None:
    assert len(through(Resampler(from_hz, rate_hz), noise(length))) == -(-length * rate_hz // from_hz)


@pytest.mark.parametrize("rate_hz", RATES_HZ)
@pytest.mark.parametrize("share_of_nyquist", (0.05, 0.3, 0.75))
def test_tones_of_the_pass_band_come_out_as_if_sampled_at_the_new_rate(rate_hz: int, share_of_nyquist: float) -> None:
    frequency_hz = share_of_nyquist * min(24_000, rate_hz) / 2
    out = through(Resampler(24_000, rate_hz), tone(frequency_hz, 24_000))
    middle = slice(rate_hz // 100, -rate_hz // 100)  # the sound begins and ends all of a sudden
    assert snr_db(tone(frequency_hz, rate_hz, rate_hz)[middle], out[middle]) > 70


@pytest.mark.parametrize("rate_hz", (8_000, 16_000, 22_050))
def test_what_cannot_be_represented_is_80_db_down(rate_hz: int) -> None:
    for frequency_hz in np.linspace(rate_hz / 2 + 500, 11_900, 40):
        out = through(Resampler(24_000, rate_hz), tone(frequency_hz, 12_000, peak=32_767))
        assert level_db(out[rate_hz // 100 : -rate_hz // 100]) < -80, frequency_hz


def test_images_above_the_old_band_are_80_db_down() -> None:
    for frequency_hz in np.linspace(100, 11_500, 40):
        out = through(Resampler(24_000, 48_000), tone(frequency_hz, 12_000, peak=32_000))[480:-480]
        spectrum = np.abs(np.fft.rfft(out * np.blackman(len(out))))
        split = round(12_500 * len(out) / 48_000)
        assert 20 * np.log10(spectrum[split:].max() / spectrum.max()) < -80, frequency_hz


@pytest.mark.parametrize("rate_hz", RATES_HZ)
def test_only_the_last_two_milliseconds_are_held_back(rate_hz: int) -> None:
    out = Resampler(24_000, rate_hz).push(noise(1920))
    assert len(out) >= (1920 - 48 - 3) * rate_hz // 24_000


@pytest.mark.parametrize("rate_hz", RATES_HZ)
@pytest.mark.parametrize("level", (1, -3, 32_767, -32_768))
def test_a_constant_keeps_its_level(rate_hz: int, level: int) -> None:
    out = through(Resampler(24_000, rate_hz), np.full(4800, level, np.int16))
    assert set(out[rate_hz // 100 : -rate_hz // 100].tolist()) == {level}
