"""Encodes the server's 16-bit samples in an audio format, piece by piece. PyAV's wheel contains the encoders.

PCM and WAV cost nothing here. The others are compressed in a thread, as this would delay the audio of other
listeners. PyAV releases the interpreter's lock meanwhile.
"""

import asyncio
import struct
from dataclasses import dataclass
from typing import Any, Protocol

import av
import numpy as np

SILENCE_MS = 20
NATIVE_RATE_HZ = 24_000
_UNKNOWN_SIZE = 0xFFFFFFFF
# The number of each format in WAV, and its bytes per sample.
_WAV_FORMATS = {"pcm_s16le": (1, 2), "pcm_f32le": (3, 4), "pcm_alaw": (6, 1), "pcm_mulaw": (7, 1)}


@dataclass(frozen=True, slots=True)
class Format:
    content_type: str
    container: str = ""  # FFmpeg's name; "" = FFmpeg is not needed
    codec: str = ""
    bitrate_bps: int = 0
    options: tuple[tuple[str, str], ...] = ()
    rates_hz: tuple[int, ...] = ()  # () = any rate that the server supports


FORMATS = {
    # Without the Xing frame, which would have to be rewritten at the end, after it was sent.
    "mp3": Format("audio/mpeg", "mp3", "libmp3lame", 64_000, (("write_xing", "0"), ("id3v2_version", "0"))),
    # One page per packet, so that no audio waits until a page of a second is full.
    "opus": Format(
        "audio/ogg", "ogg", "libopus", 32_000, (("page_duration", "20000"),), (8_000, 16_000, 24_000, 48_000)
    ),
    "aac": Format("audio/aac", "adts", "aac", 64_000),
    "flac": Format("audio/flac", "flac", "flac"),
    "wav": Format("audio/wav"),
    "pcm": Format("audio/pcm"),
}


class AudioEncoder(Protocol):
    async def encode(self, pcm: bytes) -> bytes:
        """Encode whole 16-bit little-endian samples; return the bytes that can be sent so far."""

    async def finish(self) -> bytes:
        """Return the rest. If there was no audio, this is 20 ms of silence: clients treat an empty answer as a
        fault."""


def encoder(name: str, rate_hz: int, *, whole: bool = False) -> AudioEncoder:
    """Make an encoder for a format of FORMATS. `whole`: collect everything, so that a WAV header has the length."""
    audio = FORMATS[name]
    if audio.codec:
        return _Compressed(audio, rate_hz)
    return _Collected(name, rate_hz) if whole else _Plain("pcm_s16le", rate_hz, wav=name == "wav")


def raw_encoder(encoding: str, rate_hz: int, *, wav: bool = False) -> AudioEncoder:
    """Make an encoder for one of Cartesia's encodings, bare or as WAV. For G.711, the server sends it already
    encoded."""
    return _Plain(encoding, rate_hz, wav=wav)


def wav_header(rate_hz: int, num_bytes: int | None = None, encoding: str = "pcm_s16le") -> bytes:
    """The canonical WAV header of 44 bytes, two more for encodings other than PCM. None = unknown length, in a
    stream."""
    tag, width = _WAV_FORMATS[encoding]
    fmt = struct.pack("<HHIIHH", tag, 1, rate_hz, rate_hz * width, width, 8 * width) + (b"" if tag == 1 else b"\0\0")
    riff_size = _UNKNOWN_SIZE if num_bytes is None else 20 + len(fmt) + num_bytes
    data_size = _UNKNOWN_SIZE if num_bytes is None else num_bytes
    head = b"RIFF%bWAVEfmt %b" % (struct.pack("<I", riff_size), struct.pack("<I", len(fmt)))
    return head + fmt + b"data" + struct.pack("<I", data_size)


def silence(rate_hz: int) -> bytes:
    return bytes(rate_hz * SILENCE_MS // 1000 * 2)


class _Plain:
    def __init__(self, encoding: str, rate_hz: int, *, wav: bool) -> None:
        self._header = wav_header(rate_hz, encoding=encoding) if wav else b""
        self._is_float = encoding == "pcm_f32le"
        self._silence = {"pcm_mulaw": b"\xff" * 160, "pcm_alaw": b"\xd5" * 160}.get(encoding, silence(rate_hz))
        self._is_empty = True

    async def encode(self, pcm: bytes) -> bytes:
        self._is_empty = self._is_empty and not pcm
        if self._is_float:
            pcm = (np.frombuffer(pcm, "<i2") / np.float32(32_768)).astype("<f4").tobytes()
        if not self._header:
            return pcm
        header, self._header = self._header, b""
        return header + pcm

    async def finish(self) -> bytes:
        return await self.encode(self._silence) if self._is_empty else b""


class _Collected:
    def __init__(self, name: str, rate_hz: int) -> None:
        self._name = name
        self._rate_hz = rate_hz
        self._pcm = bytearray()

    async def encode(self, pcm: bytes) -> bytes:
        self._pcm += pcm
        return b""

    async def finish(self) -> bytes:
        pcm = bytes(self._pcm) or silence(self._rate_hz)
        return wav_header(self._rate_hz, len(pcm)) + pcm if self._name == "wav" else pcm


class _Written:
    """The file that FFmpeg writes to. It cannot seek, because bytes that were sent cannot be changed."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._pieces.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)


class _Compressed:
    def __init__(self, audio: Format, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._written = _Written()
        options = {"flush_packets": "1", **dict(audio.options)}
        container: Any = av.open(self._written, "w", format=audio.container, options=options)
        self._container = container
        self._stream = container.add_stream(audio.codec, rate=rate_hz, layout="mono")
        if audio.bitrate_bps:
            self._stream.bit_rate = audio.bitrate_bps
        self._num_samples = 0

    async def encode(self, pcm: bytes) -> bytes:
        return await asyncio.to_thread(self._encode, pcm) if pcm else b""

    async def finish(self) -> bytes:
        return await asyncio.to_thread(self._finish)

    def _encode(self, pcm: bytes) -> bytes:
        samples = np.frombuffer(pcm, "<i2").reshape(1, -1)
        frame = av.AudioFrame.from_ndarray(samples, format="s16", layout="mono")
        frame.sample_rate = self._rate_hz
        frame.pts = self._num_samples
        self._num_samples += samples.shape[1]
        for packet in self._stream.encode(frame):
            self._container.mux(packet)
        return self._written.take()

    def _finish(self) -> bytes:
        head = b"" if self._num_samples else self._encode(silence(self._rate_hz))
        for packet in self._stream.encode(None):
            self._container.mux(packet)
        self._container.close()
        return head + self._written.take()
