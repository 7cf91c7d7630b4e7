"""Voices made up for tests."""

import time
from typing import Any

import numpy as np

from sonorant.service.voices.file import VoiceAbout, VoiceTensors, pack
from sonorant.service.voices.store import VoiceLimits

HIDDEN = 8
CODEBOOKS = 4
ROOMY = VoiceLimits(max_voices=10_000, max_bytes=10**9, max_voices_of_owner=10_000)


def about(voice_id: str, **values: Any) -> VoiceAbout:
    defaults: dict[str, Any] = {"kind": "cloned", "create_s": time.time(), "consent": "me", "transcript": "hello"}
    return VoiceAbout(voice_id, **(defaults | values))


def tensors(seed: int, num_frames: int = 5) -> VoiceTensors:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 64, (num_frames, CODEBOOKS), dtype=np.int16)
    return VoiceTensors(rng.standard_normal(HIDDEN, dtype=np.float32), codes)


def file_of(seed: int) -> bytes:
    """A whole voice of some kilobytes, by its number."""
    return pack(about(f"voice-{seed:05}", create_s=1.0), tensors(seed, num_frames=100 + seed % 300))
