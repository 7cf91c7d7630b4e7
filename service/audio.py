"""From the engine's samples to the bytes of the wire: framing, PCM and WAV. Pure."""

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sonorant.tts.v1 import audio_pb2

BYTES_PER_SAMPLE = 2
WAV_HEADER_BYTES = 44
_UNKNOWN_SIZE = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class AudioSpec:
    """A resolved AudioFormat."""

    encoding: audio_pb2.AudioEncoding
    sample_rate_hz: int
    frame_duration_ms: int

    @property
    def frame_bytes(self) -> int:
        return self.sample_rate_hz * self.frame_duration_ms // 1000 * BYTES_PER_SAMPLE

    @property
    def header(self) -> bytes:
        """What a stream begins with: nothing, or the WAV header of a file of unknown length."""
        return wav_header(self.sample_rate_hz) if self.encoding == audio_pb2.AUDIO_ENCODING_WAV else b""

    def to_proto(self) -> audio_pb2.AudioFormat:
        return audio_pb2.AudioFormat(
            encoding=self.encoding, sample_rate_hz=self.sample_rate_hz, frame_duration_ms=self.frame_duration_ms
        )

    def file(self, pcm: bytes) -> bytes:
        """All of an utterance in one piece."""
        if self.encoding == audio_pb2.AUDIO_ENCODING_WAV:
            return wav_header(self.sample_rate_hz, len(pcm)) + pcm
        return pcm


def wav_header(sample_rate_hz: int, num_bytes: int | None = None) -> bytes:
    """The canonical 44 bytes; None = length unknown, as a stream must say."""
    riff_size = _UNKNOWN_SIZE if num_bytes is None else WAV_HEADER_BYTES - 8 + num_bytes
    data_size = _UNKNOWN_SIZE if num_bytes is None else num_bytes
    bytes_per_s = sample_rate_hz * BYTES_PER_SAMPLE
    fmt = struct.pack("<IHHIIHH", 16, 1, 1, sample_rate_hz, bytes_per_s, BYTES_PER_SAMPLE, 8 * BYTES_PER_SAMPLE)
    return b"RIFF" + struct.pack("<I", riff_size) + b"WAVEfmt " + fmt + b"data" + struct.pack("<I", data_size)


class Framer:
    """Cuts samples, as they come, into frames of equal length."""

    def __init__(self, frame_bytes: int) -> None:
        self._frame_bytes = frame_bytes
        self._held = bytearray()

    def push(self, samples: npt.NDArray[np.int16]) -> list[bytes]:
        """Every frame that is now complete."""
        self._held += samples.astype("<i2", copy=False).tobytes()
        whole = len(self._held) // self._frame_bytes * self._frame_bytes
        frames = [bytes(self._held[i : i + self._frame_bytes]) for i in range(0, whole, self._frame_bytes)]
        del self._held[:whole]
        return frames

    def flush(self) -> list[bytes]:
        """What is left, shorter than a frame: one piece or none."""
        rest = bytes(self._held)
        self._held.clear()
        return [rest] if rest else []
