"""Recordings as files in memory, good ones and hostile ones, for tests."""

import io
import struct
from typing import Any

import numpy as np
import soundfile

from sonorant.engine.types import Float32Array


def noise(seconds: float, rate_hz: int = 24000, *, level: float = 0.1, seed: int = 0) -> Float32Array:
    """Mono, [seconds * rate_hz]."""
    values = np.random.default_rng(seed).standard_normal(round(seconds * rate_hz))
    return (level * values).astype(np.float32)


def audio_file(samples: np.ndarray, rate_hz: int = 24000, kind: str = "WAV", subtype: str | None = None) -> bytes:
    """samples [num_samples] or [num_samples, channels]; WAV is 16 bit unless `subtype` says otherwise."""
    file = io.BytesIO()
    soundfile.write(file, samples, rate_hz, format=kind, subtype=subtype)
    return file.getvalue()


def wav_that_claims(num_data_bytes: int, data: bytes, *, rate_hz: int = 24000, channels: int = 1) -> bytes:
    """A 16 bit file with the given length in its header, whatever follows."""
    block = 2 * channels
    head = struct.pack("<HHIIHH", 1, channels, rate_hz, rate_hz * block, block, 16)
    return b"".join(
        [
            *(b"RIFF", struct.pack("<I", (36 + num_data_bytes) & 0xFFFFFFFF), b"WAVEfmt ", struct.pack("<I", 16), head),
            *(b"data", struct.pack("<I", num_data_bytes), data),
        ]
    )


def flac_that_claims(num_samples: int, flac: bytes) -> bytes:
    """The same FLAC file with another number of samples (0: unknown) in its STREAMINFO."""
    changed = bytearray(flac)
    word = int.from_bytes(changed[18:26], "big")  # rate, channels, bits, and 36 bits of the number of samples
    changed[18:26] = (word >> 36 << 36 | num_samples).to_bytes(8, "big")
    return bytes(changed)


def spoken(seconds: float = 2.0, **how: Any) -> bytes:
    """A good recording."""
    return audio_file(noise(seconds), **how)
