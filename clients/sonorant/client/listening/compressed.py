"""Compresses samples into a file on this machine, in the formats that the server does not stream: MP3 and FLAC.

PyAV's wheel contains the encoders: `pip install 'sonorant[files]'`.
"""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CODECS = {".mp3": "libmp3lame", ".flac": "flac"}
MP3_BPS = 64_000


@contextmanager
def open_compressed(path: Path, sample_rate_hz: int) -> Iterator[Callable[[bytes], object]]:
    """Write 16-bit mono samples to an MP3 or FLAC file, whose end is written once the context is left.

    Encoding takes about 10 ms per second of audio, on the thread that writes. Raises ValueError without PyAV.
    """
    av = _av(path)
    with av.open(str(path), "w") as container:
        stream = container.add_stream(CODECS[path.suffix], rate=sample_rate_hz, layout="mono")
        if path.suffix == ".mp3":
            stream.bit_rate = MP3_BPS
        num_samples = 0

        def write(data: bytes) -> None:
            nonlocal num_samples
            frame = av.AudioFrame(format="s16", layout="mono", samples=len(data) // 2)
            frame.planes[0].update(data)
            frame.sample_rate, frame.pts = sample_rate_hz, num_samples
            num_samples += frame.samples
            container.mux(stream.encode(frame))

        yield write
        container.mux(stream.encode(None))


def _av(path: Path) -> Any:
    try:
        return importlib.import_module("av")
    except ImportError:
        raise ValueError(f"{path}: {path.suffix} needs PyAV: pip install 'sonorant[files]'") from None
