import sys
import warnings
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from sonorant.service.audio import g711
from tests.service.decoders import alaw_level, mulaw_level

EVERY_SAMPLE = np.arange(65_536, dtype=np.uint16).view(np.int16)


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="audioop left the standard library")
def test_every_sample_as_in_the_reference_code() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import audioop
    pcm = EVERY_SAMPLE.astype("<i2").tobytes()
    assert g711.mulaw(EVERY_SAMPLE) == audioop.lin2ulaw(pcm, 2)
    assert g711.alaw(EVERY_SAMPLE) == audioop.lin2alaw(pcm, 2)


@pytest.mark.parametrize(
    ("encode", "level", "unused"), ((g711.mulaw, mulaw_level, {0x7F}), (g711.alaw, alaw_level, set()))
)
def test_samples_go_to_a_near_level(
    encode: Callable[[npt.NDArray[np.int16]], bytes], level: Callable[[int], int], unused: set[int]
) -> None:
    codes = np.frombuffer(encode(EVERY_SAMPLE), np.uint8)
    assert set(range(256)) - set(codes.tolist()) == unused  # the reference has no negative zero
    levels = np.array([level(code) for code in range(256)])
    # Half a step, which is a sixteenth of where its segment begins, and the bits that are not looked at.
    assert (np.abs(levels[codes] - EVERY_SAMPLE) <= np.abs(EVERY_SAMPLE.astype(int)) / 32 + 12).all()


def test_known_codes() -> None:
    assert g711.mulaw(np.array([0, -1, 32_767, -32_768], np.int16)) == bytes([0xFF, 0x7E, 0x80, 0x00])
    assert g711.alaw(np.array([0, -1, 32_767, -32_768], np.int16)) == bytes([0xD5, 0x55, 0xAA, 0x2A])
