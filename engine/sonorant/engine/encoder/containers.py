"""What phones and browsers record (M4A, WebM, AAC), decoded with PyAV where it is installed. No torch."""

import importlib.util
import io
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from sonorant.engine.errors import InvalidRecording
from sonorant.engine.types import Float32Array


def can_read() -> bool:
    return importlib.util.find_spec("av") is not None


def load() -> None:
    """Load PyAV, if it is installed."""
    with suppress(ImportError):
        import av  # noqa: F401


def blocks(data: bytes, demuxer: str) -> Iterator[tuple[int, Float32Array]]:
    """Yield the rate in Hz and the next samples [samples, channels] of the first audio track. A caller that has enough
    stops asking. `demuxer`: PyAV's name of the format; no other is tried. Raises InvalidRecording."""
    import av

    try:
        with av.open(io.BytesIO(data), "r", format=demuxer) as container:
            if not container.streams.audio:
                raise InvalidRecording("RECORDING_UNREADABLE", "the recording has no sound track; record sound")
            planes = av.AudioResampler(format="fltp")
            for frame in container.decode(audio=0):
                yield from _samples(planes.resample(frame))
            yield from _samples(planes.resample(None))
    except (av.FFmpegError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is damaged"
        message = f"the recording cannot be read: {why}; give a WAV, FLAC, Ogg or MP3 file"
        raise InvalidRecording("RECORDING_UNREADABLE", message) from error


def _samples(frames: list[Any]) -> Iterator[tuple[int, Float32Array]]:
    for frame in frames:
        yield frame.sample_rate, np.ascontiguousarray(frame.to_ndarray().T, np.float32)
