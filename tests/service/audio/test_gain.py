import numpy as np
import pytest

from sonorant.service.audio.gain import amplify
from tests.service.sounds import level_db, tone

EVERY_SAMPLE = np.arange(-32_768, 32_768).astype(np.int16)


def test_none_is_none() -> None:
    assert np.array_equal(amplify(EVERY_SAMPLE, 0.0), EVERY_SAMPLE)


@pytest.mark.parametrize("gain_db", (-20.0, -6.0, 6.0, 12.0))
def test_level_changes_by_the_gain(gain_db: float) -> None:
    quiet = tone(440, 4800, peak=5000)
    assert level_db(amplify(quiet, gain_db)) - level_db(quiet) == pytest.approx(gain_db, abs=0.01)


@pytest.mark.parametrize("gain_db", (0.1, 6.0, 16.0))
def test_peaks_are_bent_never_cut(gain_db: float) -> None:
    """Louder in is louder out up to the loudest, without a jump or a corner."""
    out = amplify(EVERY_SAMPLE, gain_db).astype(int)
    steps = np.diff(out)
    assert (steps >= 0).all()
    assert steps.max() <= 10 ** (gain_db / 20) + 1
    assert np.abs(out + out[::-1]).max() <= 10 ** (gain_db / 20) + 1  # the same to both sides


def test_the_lowest_gain_leaves_one_bit() -> None:
    assert np.abs(amplify(EVERY_SAMPLE, -96.0)).max() == 1
