"""Sizes and rates of the training on what is heard."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HearingSettings:
    num_voices: int = 48  # of a step, each with one line
    num_takes: int = 12  # of each line
    take_frames: int = 56  # at most, of a take
    line_frames: int = 48  # at most, of the teacher's speech of a line
    reference_frames: int = 38  # at least, of a reference: 3 s
    max_references: int = 20_000  # on the device: 2.6 GB
    temperature: float = 0.7
    learning_rate: float = 4e-4
    pitch_weight: float = 1.5  # dB per semitone
    divergence_weight: float = 0.02
    evaluate_every_s: float = 60.0
    max_steps: int | None = None  # None: as many as there is time for
