"""Recordings and exported voices with bytes changed: each is read, or refused with what was wrong."""

import random
from contextlib import suppress
from functools import cache

import numpy as np

from sonorant.engine.encoder.recording import read_upload
from sonorant.engine.errors import InvalidRecording
from sonorant.service.voices.file import NotAVoiceFile, unpack
from tests.engine.encoder.recordings import spoken
from tests.fuzz.bytes import mutated
from tests.service.voice_values import file_of

RATE_HZ = 24_000
MAX_SAMPLES = 31 * RATE_HZ


@cache
def recording(kind: str) -> bytes:
    return spoken(1.2, kind=kind)


@cache
def voice_file() -> bytes:
    return file_of(1)


def read_changed_uploads(rng: random.Random) -> int:
    """A recording and a voice file; returns how many."""
    data = mutated(recording(rng.choice(("WAV", "FLAC", "OGG", "MP3", "RF64"))), rng)
    try:
        samples = read_upload(data, RATE_HZ).samples
    except InvalidRecording:
        pass
    else:
        assert len(samples) <= MAX_SAMPLES and np.isfinite(samples).all(), data[:200]
    with suppress(NotAVoiceFile):
        unpack(mutated(voice_file(), rng))
    return 2
