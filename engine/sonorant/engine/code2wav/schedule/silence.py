"""Finds in a stream's samples for how long it has been silent."""

import numpy as np

from sonorant.engine.types import Float32Array, Int16Array

SILENT_PEAK = 66  # of 32768, which is -54 dB: below it nobody hears speech


def silent_tail(samples: Int16Array | Float32Array, num_frames: int) -> list[int]:
    """How many silent frames each row of [rows, frames * frame_samples] ends with; `num_frames` if all are silent."""
    frames = samples.reshape(len(samples), num_frames, -1)
    peak = SILENT_PEAK if samples.dtype == np.int16 else SILENT_PEAK / 32768
    is_loud = (frames.max(-1) > peak) | (frames.min(-1) < -peak)
    tail: list[int] = np.where(is_loud.any(1), is_loud[:, ::-1].argmax(1), num_frames).tolist()
    return tail
