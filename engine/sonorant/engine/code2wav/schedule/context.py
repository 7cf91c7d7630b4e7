"""What the batcher must know to decode frames for the state they leave, without their audio. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DecoderContext:
    """How much of the past one decoder needs."""

    receptive_frames: int  # the next frame depends on at most so many before it
    chunk_frames: int  # unheard frames of a row that one call should take
