"""Speakers: the teacher's voices as they are, and any number of made speakers.

A made speaker is a voice with another pitch, another length of the vocal tract and another pace, written
`voice:pitch in Hz:formant ratio:stretch`, as in `slt:185:1.08:0.95`. Sentence lists name speakers in this way.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

# (voice, share of the speakers). The pitch of `rms` follows its formants: flite cannot set it.
MADE_OF = (("slt", 0.33), ("awb", 0.33), ("kal16", 0.17), ("rms", 0.17))
NATURAL_F0_HZ = {"rms": 103.0}
F0_RANGE_HZ = (85.0, 270.0)
FORMANTS_RANGE = (0.82, 1.25)
STRETCH_RANGE = (0.87, 1.15)
VOICE_NAMES = tuple(voice for voice, _ in MADE_OF)
NUM_TRAITS = 3


@dataclass(frozen=True, slots=True)
class Speaker:
    voice: str
    f0_hz: float | None = None  # median pitch; None: the voice as it is
    formants: float = 1.0  # factor of the formants; above 1 the vocal tract is shorter
    stretch: float = 1.0  # factor of durations

    @classmethod
    def parse(cls, name: str) -> Self:
        voice, *traits = name.split(":")
        return cls(voice, *map(float, traits)) if traits else cls(voice)

    def __str__(self) -> str:
        if self.f0_hz is None:
            return self.voice
        return f"{self.voice}:{self.f0_hz:.0f}:{self.formants:.3f}:{self.stretch:.2f}"

    def traits(self) -> npt.NDArray[np.float32]:
        """Pitch, formants and pace, [NUM_TRAITS]: each -1 to 1 over the range that speakers are drawn from; zeros for a
        voice as it is."""
        if self.f0_hz is None:
            return np.zeros(NUM_TRAITS, np.float32)
        values, ranges = (self.f0_hz, self.formants, self.stretch), (F0_RANGE_HZ, FORMANTS_RANGE, STRETCH_RANGE)
        low, high = np.log(ranges).T
        scaled: npt.NDArray[np.float32] = ((2 * np.log(values) - low - high) / (high - low)).astype(np.float32)
        return scaled


def draw(rng: random.Random) -> Speaker:
    """Draw a made speaker. Formants and pitch are independent, unless the pitch of the voice cannot be set."""
    voice = rng.choices(VOICE_NAMES, [share for _, share in MADE_OF])[0]
    formants = _log_uniform(rng, FORMANTS_RANGE)
    f0_hz = NATURAL_F0_HZ[voice] * formants if voice in NATURAL_F0_HZ else _log_uniform(rng, F0_RANGE_HZ)
    return Speaker.parse(str(Speaker(voice, f0_hz, formants, _log_uniform(rng, STRETCH_RANGE))))


def many_speakers(sentences_each: int, seed: int) -> Iterator[str]:
    """Yield the speaker of each line of a sentence list, endlessly: a new one every `sentences_each` lines."""
    rng = random.Random(f"speakers {seed}")
    while True:
        yield from [str(draw(rng))] * sentences_each


def given_voices(num_held_out: int, shares: Mapping[str, float], seed: int) -> Iterator[str]:
    """Yield the voice of each line, endlessly: in turn for the held-out lines, then at random."""
    rng = random.Random(f"voices {seed}")
    voices = tuple(shares)
    for row in range(num_held_out):
        yield voices[row % len(voices)]
    while True:
        yield rng.choices(voices, tuple(shares.values()))[0]


def _log_uniform(rng: random.Random, limits: tuple[float, float]) -> float:
    low, high = limits
    return low * float((high / low) ** rng.random())
