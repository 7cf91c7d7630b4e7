"""What there is to know of frames that are decoded for the state they leave, and not heard. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Memory:
    """Of one decoder."""

    receptive_frames: int  # what is decoded next depends on so many at most
    chunk_frames: int  # of a row, that one call had better take
