"""Speakers: the teacher's voices as they are, and any number of made speakers.

A made speaker is a voice with another pitch, another length of the vocal tract and another pace, written
`voice:pitch in Hz:formant ratio:stretch`, as in `slt:185:1.08:0.95`. The voice may be a mixture, as in
`af_heart*0.62+hm_psi*0.38:147:0.98:1.04`. Sentence lists name speakers in this way.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

# flite's voices, and their shares of the speakers. The pitch of `rms` follows its formants: flite cannot set it.
MADE_OF: Mapping[str, float] = {"slt": 0.33, "awb": 0.33, "kal16": 0.17, "rms": 0.17}
NATURAL_F0_HZ = {"rms": 103.0}
F0_RANGE_HZ = (85.0, 270.0)
FORMANTS_RANGE = (0.82, 1.25)
STRETCH_RANGE = (0.87, 1.15)
# Kokoro's voices and their pitch. None has the name of another company's voice.
PARTS_F0_HZ: Mapping[str, float] = {
    "af_heart": 185.0,
    "am_michael": 106.0,
    "am_santa": 155.0,
    "bf_emma": 175.0,
    "bf_isabella": 203.0,
    "bm_lewis": 96.0,
    "ef_dora": 164.0,
    "em_alex": 124.0,
    "em_santa": 126.0,
    "ff_siwis": 202.0,
    "hf_alpha": 213.0,
    "hf_beta": 178.0,
    "hm_omega": 124.0,
    "hm_psi": 129.0,
    "im_nicola": 100.0,
    "jf_alpha": 258.0,
    "jf_gongitsune": 218.0,
    "jf_nezumi": 220.0,
    "jf_tebukuro": 309.0,
    "jm_kumo": 90.0,
    "pf_dora": 170.0,
    "pm_alex": 128.0,
    "pm_santa": 132.0,
}
MIXED_F0_SEMITONES = 4.0  # at most so far from the pitch of the mixture, at which it still sounds like a person
MIXED_F0_RANGE_HZ = (75.0, 290.0)
MIXED_FORMANTS_RANGE = (0.9, 1.12)
VOICE_NAMES = (*MADE_OF, *PARTS_F0_HZ)
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

    @property
    def shares(self) -> Mapping[str, float]:
        """The teacher's voices that this one is a mixture of; their shares sum to one."""
        parts = [part.partition("*") for part in self.voice.split("+")]
        return {name: float(share or 1.0) for name, _, share in parts}

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
    """Draw a made speaker of flite. Formants and pitch are independent, unless the pitch of the voice cannot be set."""
    voice = rng.choices(tuple(MADE_OF), tuple(MADE_OF.values()))[0]
    formants = _log_uniform(rng, FORMANTS_RANGE)
    f0_hz = NATURAL_F0_HZ[voice] * formants if voice in NATURAL_F0_HZ else _log_uniform(rng, F0_RANGE_HZ)
    return Speaker.parse(str(Speaker(voice, f0_hz, formants, _log_uniform(rng, STRETCH_RANGE))))


def draw_mixture(rng: random.Random) -> Speaker:
    """Draw a made speaker of Kokoro: two or three of its voices, mixed, with a pitch near the mixture's own."""
    parts = rng.sample(tuple(PARTS_F0_HZ), rng.choice((2, 2, 3)))
    weights = [rng.gammavariate(1.0, 1.0) for _ in parts]
    percents = [5 + round((95 - 5 * len(parts)) * weight / sum(weights)) for weight in weights]
    percents[0] += 100 - sum(percents)
    voice = "+".join(f"{part}*{percent / 100:.2f}" for part, percent in zip(parts, percents, strict=True))
    own_hz = np.exp(sum(p / 100 * np.log(PARTS_F0_HZ[part]) for part, p in zip(parts, percents, strict=True)))
    f0_hz = float(own_hz) * 2 ** (rng.uniform(-MIXED_F0_SEMITONES, MIXED_F0_SEMITONES) / 12)
    low_hz, high_hz = MIXED_F0_RANGE_HZ
    formants, stretch = _log_uniform(rng, MIXED_FORMANTS_RANGE), _log_uniform(rng, STRETCH_RANGE)
    return Speaker.parse(str(Speaker(voice, min(max(f0_hz, low_hz), high_hz), formants, stretch)))


def many_speakers(draw_one: Callable[[random.Random], Speaker], sentences_each: int, seed: int) -> Iterator[str]:
    """Yield the speaker of each line of a sentence list, endlessly: a new one every `sentences_each` lines."""
    rng = random.Random(f"speakers {seed}")
    while True:
        yield from [str(draw_one(rng))] * sentences_each


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
