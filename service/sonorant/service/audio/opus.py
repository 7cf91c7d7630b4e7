"""Encodes samples into Opus packets, with FFmpeg's libopus in PyAV (the extra `opus`). Knows no container."""

from functools import cache
from importlib.util import find_spec
from types import ModuleType

import numpy as np

from sonorant.service.audio.pcm import Samples

INSTALL = "pip install 'sonorant-server[opus]'"
RATES_HZ = (8_000, 16_000, 24_000, 48_000)
BITRATES_BPS = range(6_000, 256_001)
DEFAULT_BITRATE_BPS = 32_000
PACKETS_MS = (10, 20, 40, 60)
_COMPLEXITY = "5"  # from 0 to 10; takes a quarter of the time of 10, at the same bit rate


@cache
def available() -> bool:
    return find_spec("av") is not None


def load() -> ModuleType:
    """Load PyAV: 15 MiB, and 0.1 s in which nothing else of the process runs."""
    import av

    return av


class OpusEncoder:
    """Encodes one stream into packets of `packet_samples` samples."""

    def __init__(self, sample_rate_hz: int, packet_ms: int, bitrate_bps: int) -> None:
        self.packet_samples = sample_rate_hz * packet_ms // 1000
        self._sample_rate_hz = sample_rate_hz
        self._av = load()
        self._context = self._av.AudioCodecContext.create("libopus", "w")
        self._context.sample_rate = sample_rate_hz
        self._context.layout = "mono"
        self._context.format = "s16"
        self._context.bit_rate = bitrate_bps
        self._context.options = {
            "application": "audio",  # not "voip", which high-passes the voice
            "frame_duration": str(packet_ms),
            "compression_level": _COMPLEXITY,
            "vbr": "constrained",
        }
        self._context.open()
        self._num_in = 0
        # The OpusHead structure of RFC 7845. It says by how many samples of 48 kHz the decoder's output lags behind.
        assert self._context.extradata is not None, "an open encoder has it"
        self.head = bytes(self._context.extradata)
        self.pre_skip = int.from_bytes(self.head[10:12], "little")

    def encode(self, samples: Samples) -> bytes:
        """Encode `packet_samples` samples into a packet."""
        frame = self._av.AudioFrame.from_ndarray(np.ascontiguousarray(samples[np.newaxis]), format="s16", layout="mono")
        frame.sample_rate = self._sample_rate_hz
        frame.pts = self._num_in
        self._num_in += len(samples)
        (packet,) = self._context.encode(frame)
        return bytes(packet)
