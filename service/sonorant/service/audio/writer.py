"""Turns the engine's samples into the bytes of the wire, through every stage that an utterance asks for. Pure.

    engine -> speed -> gain -> sample rate -> encoding, cut into frames -> AudioChunk

A stage that would change nothing is left out, so PCM at the engine's rate is the engine's samples, bit for bit. The
bytes do not depend on how the engine cuts its audio into chunks, and streamed bytes equal those of a whole clip. Only
Opus differs: a flush pads the last frame with silence.
"""

import io
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
import soundfile

from sonorant.engine import Int16Array
from sonorant.service.audio import g711
from sonorant.service.audio.codes import join
from sonorant.service.audio.gain import GAINS_DB, amplify
from sonorant.service.audio.ogg import OggOpusWriter
from sonorant.service.audio.opus import OpusEncoder
from sonorant.service.audio.pcm import EMPTY, Samples
from sonorant.service.audio.resample import Resampler
from sonorant.service.audio.stretch import SPEEDS, Stretcher
from sonorant.tts.v1 import audio_pb2

WAV_HEADER_BYTES = 44
_UNKNOWN_SIZE = 0xFFFFFFFF
_OPUS_CLOCK_HZ = 48_000


@dataclass(frozen=True, slots=True)
class AudioSpec:
    """A resolved AudioFormat, and what is done to the engine's audio to get there."""

    encoding: audio_pb2.AudioEncoding
    sample_rate_hz: int
    frame_duration_ms: int
    bitrate_bps: int = 0  # Opus only
    native_rate_hz: int = 24_000
    speed: float = 1.0
    gain_db: float = 0.0
    may_join: bool = False  # chunks may carry several frames
    starts_short: bool = False  # the first frame may be shorter

    def to_proto(self) -> audio_pb2.AudioFormat:
        return audio_pb2.AudioFormat(
            encoding=self.encoding,
            sample_rate_hz=self.sample_rate_hz,
            frame_duration_ms=self.frame_duration_ms,
            bitrate_bps=self.bitrate_bps,
        )

    def varied(self, gain_db: float, speed: float) -> "AudioSpec":
        """Return how a segment sounds that is so much louder and faster than the others. Codes stay as they are."""
        if (gain_db == 0 and speed == 1) or self.encoding == audio_pb2.AUDIO_ENCODING_CODES:
            return self
        return replace(
            self, gain_db=_within(self.gain_db + gain_db, GAINS_DB), speed=_within(self.speed * speed, SPEEDS)
        )

    def pause(self, duration_ms: int) -> Samples:
        """Return silence at the engine's rate, longer by the factor by which `speed` shortens it later."""
        return np.zeros(round(duration_ms * self.native_rate_hz * self.speed / 1000), np.int16)

    def file(self, stream: bytes) -> bytes:
        """Return a whole stream as a file, whose header has the length."""
        if self.encoding == audio_pb2.AUDIO_ENCODING_WAV:
            pcm = stream[WAV_HEADER_BYTES:]
            return wav_header(self.sample_rate_hz, len(pcm)) + pcm
        if self.encoding == audio_pb2.AUDIO_ENCODING_FLAC:
            file = io.BytesIO()
            soundfile.write(file, np.frombuffer(stream, "<i2"), self.sample_rate_hz, format="FLAC", subtype="PCM_16")
            return file.getvalue()
        return stream


def _within(value: float, limits: tuple[float, float]) -> float:
    return min(max(value, limits[0]), limits[1])


class Piece(NamedTuple):
    """An AudioChunk's data, or a part of it. Headers have no samples."""

    data: bytes | memoryview
    num_samples: int


def joined(pieces: deque[Piece], spec: AudioSpec, max_ms: float) -> tuple[bytes, int]:
    """Take the next piece, and more of those that are there if the spec allows. Return their bytes and sample count."""
    first, num_samples = pieces.popleft()
    data = [first]
    if spec.may_join and num_samples:
        limit = max_ms * spec.sample_rate_hz // 1000
        while pieces and pieces[0].num_samples and num_samples + pieces[0].num_samples <= limit:
            more, more_samples = pieces.popleft()
            data.append(more)
            num_samples += more_samples
    is_records = len(data) > 1 and spec.encoding == audio_pb2.AUDIO_ENCODING_CODES
    return (join([bytes(each) for each in data]) if is_records else b"".join(data)), num_samples


class AudioWriter:
    """The `Writer` of all encodings but codes."""

    def __init__(self, spec: AudioSpec, serial: int = 0) -> None:
        """`serial`: 32-bit number of the stream in an Ogg container."""
        self._spec = spec
        self._stretcher = Stretcher(spec.speed, spec.native_rate_hz) if spec.speed != 1 else None
        resampled = spec.sample_rate_hz != spec.native_rate_hz
        self._resampler = Resampler(spec.native_rate_hz, spec.sample_rate_hz) if resampled else None
        self._frames = _frames(spec, serial)
        self._begun = False

    def begin(self, spec: AudioSpec | None = None, *, carries_on: bool = False) -> list[Piece]:
        """Return what comes before any audio, only once: a header, if the encoding has one."""
        spec = spec or self._spec
        if spec.speed != self._spec.speed:
            self._stretcher = Stretcher(spec.speed, spec.native_rate_hz) if spec.speed != 1 else None
        self._spec = spec
        if self._begun:
            return []
        self._begun = True
        header = self._frames.header()
        return [Piece(header, 0)] if header else []

    def speech(self, samples: Samples, codes: Int16Array) -> list[Piece]:
        is_changed = self._resampler or self._stretcher or self._spec.gain_db
        return self._frames.push(self._processed(samples) if is_changed else samples)

    def skip(self, samples: Samples, codes: Int16Array) -> list[Piece]:
        return self._frames.skip(self._processed(samples))

    def pause(self, duration_ms: int) -> list[Piece]:
        return self.push(self._spec.pause(duration_ms))

    def push(self, samples: Samples) -> list[Piece]:
        """Add samples and return every frame that is now complete."""
        return self._frames.push(self._processed(samples))

    def flush(self) -> list[Piece]:
        """Return all that is still held. What is pushed afterwards begins anew, but in the same container."""
        return self._rest() + self._frames.flush()

    def end(self) -> list[Piece]:
        """Return all that is still held, and what closes the container."""
        return self._rest() + self._frames.end() if self._begun else []

    def _rest(self) -> list[Piece]:
        return self._frames.push(self._processed(EMPTY, ends=True))

    def _processed(self, samples: Samples, *, ends: bool = False) -> Samples:
        """Take samples through all stages; if the speech `ends`, also what the stages hold."""
        if self._stretcher:
            samples = self._stretcher.finish() if ends else self._stretcher.push(samples)
        if self._spec.gain_db:
            samples = amplify(samples, self._spec.gain_db)
        if self._resampler:
            samples = self._resampler.push(samples)
            samples = np.concatenate([samples, self._resampler.finish()]) if ends else samples
        return samples


class _Frames(Protocol):
    """Encodes samples and cuts them into frames of `frame_duration_ms`."""

    def header(self) -> bytes: ...
    def push(self, samples: Samples) -> list[Piece]: ...
    def skip(self, samples: Samples) -> list[Piece]: ...
    def flush(self) -> list[Piece]: ...
    def end(self) -> list[Piece]: ...


def _frames(spec: AudioSpec, serial: int) -> _Frames:
    match spec.encoding:
        case audio_pb2.AUDIO_ENCODING_MULAW:
            return _SampleFrames(spec, g711.mulaw)
        case audio_pb2.AUDIO_ENCODING_ALAW:
            return _SampleFrames(spec, g711.alaw)
        case audio_pb2.AUDIO_ENCODING_OPUS:
            return _OpusFrames(spec, spec.frame_duration_ms, None)
        case audio_pb2.AUDIO_ENCODING_OGG_OPUS:
            packet_ms = 10 if spec.frame_duration_ms % 20 else 20
            return _OpusFrames(spec, packet_ms, OggOpusWriter(serial))
        case _:
            return _SampleFrames(spec, _s16le)


class _SampleFrames:
    """Frames of encodings that encode each sample by itself."""

    def __init__(self, spec: AudioSpec, encode: Callable[[Samples], bytes]) -> None:
        self._spec = spec
        self._encode = encode
        self._frame_samples = spec.sample_rate_hz * spec.frame_duration_ms // 1000
        # Silence at the beginning is left out. What is left of a frame does not wait for the next one.
        self._first_is_shorter = spec.starts_short
        self._held = EMPTY

    def header(self) -> bytes:
        return wav_header(self._spec.sample_rate_hz) if self._spec.encoding == audio_pb2.AUDIO_ENCODING_WAV else b""

    def push(self, samples: Samples) -> list[Piece]:
        held = np.concatenate([self._held, samples]) if len(self._held) else samples
        size = self._frame_samples
        first = len(held) % size if self._first_is_shorter else 0
        whole = first + (len(held) - first) // size * size
        self._held = held[whole:]
        if not whole:
            return []
        self._first_is_shorter = False
        data = memoryview(self._encode(held[:whole]))  # not copied: `joined` mostly joins the parts again
        width = len(data) // whole
        ends = range(first or size, whole + 1, size)
        return [Piece(data[max(0, end - size) * width : end * width], min(end, size)) for end in ends]

    skip = push

    def flush(self) -> list[Piece]:
        rest, self._held = self._held, EMPTY
        return [Piece(self._encode(rest), len(rest))] if len(rest) else []

    end = flush


class _OpusFrames:
    """Opus packets: one per piece, or all packets of a frame on one Ogg page.

    A decoder's output lags behind by the encoder's look-ahead, which listeners drop at the start. `num_samples` counts
    without it: the first piece has fewer samples, and an utterance has as many as went in.
    """

    def __init__(self, spec: AudioSpec, packet_ms: int, ogg: OggOpusWriter | None) -> None:
        self._encoder = OpusEncoder(spec.sample_rate_hz, packet_ms, spec.bitrate_bps)
        self._clock = _OPUS_CLOCK_HZ // spec.sample_rate_hz
        self._look_ahead = self._encoder.pre_skip // self._clock
        self._ogg = ogg
        self._packets_per_piece = spec.frame_duration_ms // packet_ms
        self._held = EMPTY
        self._packets: list[bytes] = []  # not in any piece yet
        # Positions in the utterance, in samples.
        self._packed = 0  # the end of the last packet
        self._sound_end = 0
        self._delivered = 0  # the end of what a decoder puts out for the pieces so far

    def header(self) -> bytes:
        return self._ogg.headers(self._encoder.head) if self._ogg else b""

    def push(self, samples: Samples) -> list[Piece]:
        return self._push(samples, self._encoder.encode)

    def skip(self, samples: Samples) -> list[Piece]:
        """Count the samples, and leave out the encoding, which takes a hundredth of the time that they last."""
        return self._push(samples, _no_packet)

    def _push(self, samples: Samples, encode: Callable[[Samples], bytes]) -> list[Piece]:
        if not len(samples):
            return []
        self._held = np.concatenate([self._held, samples])
        self._sound_end = self._packed + len(self._held)
        self._pack(encode)
        return self._pieces(len(self._packets) // self._packets_per_piece)

    def flush(self) -> list[Piece]:
        """Return all that is held, padded with silence. The silence counts as sound."""
        self._pack_rest()
        return self._pieces(-(-len(self._packets) // self._packets_per_piece))

    def end(self) -> list[Piece]:
        """Return all that is held, padded with silence. The silence does not count as sound."""
        self._pack_rest()
        num_pieces = -(-len(self._packets) // self._packets_per_piece)
        if self._ogg:  # Ogg marks its last page, so there must be one, even if it is empty
            num_pieces = max(1, num_pieces)
        return self._pieces(num_pieces, last=True)

    def _pack_rest(self) -> None:
        if self._delivered < self._sound_end:
            silence = np.zeros(self._look_ahead + self._encoder.packet_samples - 1, np.int16)
            self._held = np.concatenate([self._held, silence])
            self._pack(self._encoder.encode)
            self._held = EMPTY

    def _pack(self, encode: Callable[[Samples], bytes]) -> None:
        size = self._encoder.packet_samples
        whole = len(self._held) // size * size
        self._packets += [encode(self._held[start : start + size]) for start in range(0, whole, size)]
        self._held = self._held[whole:]
        self._packed += whole

    def _pieces(self, count: int, *, last: bool = False) -> list[Piece]:
        return [self._piece(last=last and index == count - 1) for index in range(count)]

    def _piece(self, *, last: bool) -> Piece:
        packets, self._packets = self._packets[: self._packets_per_piece], self._packets[self._packets_per_piece :]
        end = self._packed - len(self._packets) * self._encoder.packet_samples - self._look_ahead
        if last:
            end = max(self._delivered, min(end, self._sound_end))
        num_samples, self._delivered = end - self._delivered, end
        if self._ogg is None:
            return Piece(b"".join(packets), num_samples)
        return Piece(self._ogg.page(packets, (end + self._look_ahead) * self._clock, last=last), num_samples)


def _no_packet(samples: Samples) -> bytes:
    return b""


def _s16le(samples: Samples) -> bytes:
    return samples.astype("<i2", copy=False).tobytes()


def wav_header(sample_rate_hz: int, num_bytes: int | None = None) -> bytes:
    """Return the canonical 44 bytes. `num_bytes`: of the audio; None in a stream, whose length is unknown."""
    riff_size = _UNKNOWN_SIZE if num_bytes is None else WAV_HEADER_BYTES - 8 + num_bytes
    data_size = _UNKNOWN_SIZE if num_bytes is None else num_bytes
    fmt = struct.pack("<IHHIIHH", 16, 1, 1, sample_rate_hz, sample_rate_hz * 2, 2, 16)
    return b"RIFF" + struct.pack("<I", riff_size) + b"WAVEfmt " + fmt + b"data" + struct.pack("<I", data_size)
