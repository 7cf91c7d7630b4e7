"""What the fake engine says: a function of text, frame and seed.

Frame k speaks character k // FRAMES_PER_CHAR: any loss, repetition or mix-up of frames or streams shows in the audio.
"""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from sonorant.service.text.pronunciations import Lexicon
from sonorant.service.text.segmenter import Segmenter, TextPolicy

FRAMES_PER_CHAR = 2
FRAME_SAMPLES = 1920
NUM_CODEBOOKS = 4
_STEPS = (np.arange(FRAME_SAMPLES) % 7).astype(np.int16)


def as_written() -> Segmenter:
    """Of a text that is spoken as it is written."""
    return Segmenter(TextPolicy(), Lexicon(), 10_000)


@lru_cache(4096)
def frame_samples(char: str, frame: int, seed: int) -> npt.NDArray[np.int16]:
    tone = (ord(char) * 7919 + frame * 104_729 + seed) % 30_000 - 15_000
    return _STEPS + np.int16(tone)


def frame_codes(text: str, frame: int) -> list[int]:
    return [(ord(text[frame // FRAMES_PER_CHAR]) + frame + codebook) % 64 for codebook in range(NUM_CODEBOOKS)]


def spoken(text: str, seed: int = 0) -> bytes:
    """All the audio of a text, as PCM_S16LE."""
    frames = range(len(text) * FRAMES_PER_CHAR)
    return b"".join(frame_samples(text[k // FRAMES_PER_CHAR], k, seed).astype("<i2").tobytes() for k in frames)
