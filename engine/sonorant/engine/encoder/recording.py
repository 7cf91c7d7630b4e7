"""Decodes an uploaded recording to mono samples at the model's rate, or says why it cannot be used. No torch.

Uploads are taken to be hostile. The length in a file's header is checked before anything is decoded, and then no more
than that is decoded, block by block, whatever else is in the file.
"""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, BinaryIO

import numpy as np
import soundfile
import soxr

from sonorant.engine.encoder import containers
from sonorant.engine.errors import InvalidRecording
from sonorant.engine.types import MAX_RECORDING_S, Float32Array, RecordingInfo

MIN_RECORDING_S = 1.0  # a good clone needs some seconds; less than one cannot be used
MIN_LEVEL_DBFS = -60.0
MAX_CLIPPED_SHARE = 0.01
RATES_HZ = range(8_000, 192_001)
MAX_CHANNELS = 32

CLIPPED_FROM = 0.999
MAX_PEAK = 8.0  # floats may exceed full scale, but not by this much
UNKNOWN_LENGTH = 1 << 48  # libsndfile reports this many samples or more for a FLAC file that was written to a pipe
SPEECH_BLOCK_MS = 20
MIN_RANGE_DB, MAX_RANGE_DB = 15.0, 25.0  # between quiet and loud parts; speech has over 20 in a quiet room
BLOCK_VALUES = 1 << 18  # values decoded at a time, all channels together

UNKNOWN_WAV_BYTES = (0, 0xFFFFFFFF)
ANOTHER_FILE = "give a WAV, FLAC, Ogg or MP3 file"
_KNOWN = (b"RIFF", b"RF64", b"fLaC", b"OggS", b"ID3")
_STRANGERS = ((0, b"FORM", "AIFF"), (4, b"ftyp", "MP4 or M4A"), (0, b"\x1aE\xdf\xa3", "WebM or Matroska"))


@dataclass(frozen=True, slots=True)
class Recording:
    samples: Float32Array  # mono, at the requested rate
    info: RecordingInfo
    clipped_share: float  # share of all decoded values that are clipped


def read_upload(data: bytes, rate_hz: int) -> Recording:
    """Read an upload, mono at `rate_hz`. Raises InvalidRecording unless a voice may be made from it."""
    if (demuxer := _demuxer(data)) and containers.can_read():
        recording = _of_container(data, demuxer, rate_hz)
    else:
        _check_format(data)
        recording = read_recording(io.BytesIO(_with_its_length(data)), rate_hz, max_s=MAX_RECORDING_S)
    info, seconds = recording.info, recording.info.duration_ms / 1000
    if seconds < MIN_RECORDING_S:
        raise InvalidRecording(
            "RECORDING_TOO_SHORT",
            f"the recording lasts {seconds:.3f} s; {MIN_RECORDING_S:g} s is the least, and 3 to 15 s are best",
        )
    if info.level_dbfs < MIN_LEVEL_DBFS:
        level = f"is at {info.level_dbfs:.1f} dBFS" if info.level_dbfs > -math.inf else "has no sound at all"
        raise InvalidRecording(
            "RECORDING_SILENT",
            f"the recording {level}, mixed down to one channel; record it louder, {MIN_LEVEL_DBFS:g} dBFS is the least",
        )
    if recording.clipped_share > MAX_CLIPPED_SHARE:
        raise InvalidRecording(
            "RECORDING_CLIPPED",
            f"{recording.clipped_share:.1%} of the recording is at full scale or beyond; record it less loud, "
            f"{MAX_CLIPPED_SHARE:.0%} is the most",
        )
    return recording


def read_recording(file: str | PathLike[str] | BinaryIO, rate_hz: int, *, max_s: float = math.inf) -> Recording:
    """Read any file that libsndfile knows, mono at `rate_hz`. Raises InvalidRecording, also if it is too long."""
    blocks: list[Float32Array] = []
    num_clipped = 0
    try:
        with soundfile.SoundFile(file) as sound:
            _check_header(sound, max_s)
            found_rate_hz, channels = sound.samplerate, sound.channels
            block_samples = BLOCK_VALUES // channels
            while len(block := sound.read(block_samples, dtype="float32", always_2d=True)):  # [samples, channels]
                num_clipped += _num_clipped(block)
                blocks.append(_mono(block))
    except (OSError, soundfile.SoundFileError) as error:
        why = getattr(error, "error_string", None) or getattr(error, "strerror", None) or "it is damaged"
        message = f"the recording cannot be read: {why.rstrip('.')}; {ANOTHER_FILE}"
        raise InvalidRecording("RECORDING_UNREADABLE", message) from error
    return _recording(blocks, found_rate_hz, channels, num_clipped, rate_hz)


def _recording(
    blocks: Sequence[Float32Array], found_rate_hz: int, channels: int, num_clipped: int, rate_hz: int
) -> Recording:
    """`blocks`: mono, at the rate that was found. `num_clipped`: of the values of all channels."""
    samples = np.concatenate(blocks) if blocks else np.empty(0, np.float32)
    duration_ms = round(1000 * len(samples) / found_rate_hz)
    powers = _powers(samples, found_rate_hz * SPEECH_BLOCK_MS // 1000) if len(samples) else samples
    level_dbfs = 10 * math.log10(powers.mean(dtype=np.float64)) if powers.any() else -math.inf
    info = RecordingInfo(duration_ms, level_dbfs, found_rate_hz, channels, _speech_ms(powers))
    resampled = samples if found_rate_hz == rate_hz else _resampled(samples, found_rate_hz, rate_hz)
    return Recording(resampled, info, num_clipped / max(1, len(samples) * channels))


def _of_container(data: bytes, demuxer: str, rate_hz: int) -> Recording:
    """Read a file whose header need not say how long it is."""
    blocks: list[Float32Array] = []
    num_samples = num_clipped = found_rate_hz = channels = 0
    for found_rate_hz, block in containers.blocks(data, demuxer):
        if channels not in (0, block.shape[1]):
            raise InvalidRecording("RECORDING_UNREADABLE", "the recording changes its channels; save it as a WAV file")
        channels = block.shape[1]
        _check_kind(found_rate_hz, channels)
        if (num_samples := num_samples + len(block)) > MAX_RECORDING_S * found_rate_hz:
            message = f"the recording lasts more than {MAX_RECORDING_S:g} s; cut it"
            raise InvalidRecording("RECORDING_TOO_LONG", message)
        num_clipped += _num_clipped(block)
        blocks.append(_mono(block))
    return _recording(blocks, found_rate_hz or rate_hz, max(1, channels), num_clipped, rate_hz)


def _with_its_length(data: bytes) -> bytes:
    """Return a file with the length of its samples in the header, if it is a WAV file that was written to a pipe: such
    a header has 0, or the largest number."""
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        return data
    at = 12
    while at + 8 <= len(data):
        num_bytes = int.from_bytes(data[at + 4 : at + 8], "little")
        if data[at : at + 4] == b"data":
            if num_bytes not in UNKNOWN_WAV_BYTES:
                return data
            whole, samples = ((len(data) - begin).to_bytes(4, "little") for begin in (8, at + 8))
            return b"".join((b"RIFF", whole, data[8 : at + 4], samples, data[at + 8 :]))
        at += 8 + num_bytes + num_bytes % 2
    return data


def _demuxer(data: bytes) -> str:
    """Return PyAV's name for a format that libsndfile does not know, or ""."""
    if data[4:8] == b"ftyp":
        return "mov"
    if data.startswith(b"\x1aE\xdf\xa3"):
        return "matroska"
    return "aac" if data[:1] == b"\xff" and len(data) > 1 and data[1] & 0xF6 == 0xF0 else ""


def _check_format(data: bytes) -> None:
    """Check the format by content, because libsndfile would read a hundred more formats, which nobody uploads."""
    if _demuxer(data) == "aac":
        raise InvalidRecording("RECORDING_UNREADABLE", f"the recording is AAC, which is not supported; {ANOTHER_FILE}")
    if data.startswith(_KNOWN) or (data[:1] == b"\xff" and data[1:2] >= b"\xe0"):  # a bare frame of MPEG
        return
    begins = f"begins with the bytes {data[:12].hex(' ')}" if data else "is empty"
    is_what = next(
        (f"is {name}, which is not supported" for at, magic, name in _STRANGERS if data[at:].startswith(magic)),
        f"is in no known audio format: it {begins}",
    )
    raise InvalidRecording("RECORDING_UNREADABLE", f"the recording {is_what}; {ANOTHER_FILE}")


def _check_header(sound: Any, max_s: float) -> None:
    _check_kind(sound.samplerate, sound.channels)
    if sound.frames >= UNKNOWN_LENGTH:  # libsndfile cannot read such a file to its end
        raise InvalidRecording(
            "RECORDING_UNREADABLE", "the recording does not say how long it is; save it as a WAV file"
        )
    if sound.frames > max_s * sound.samplerate:
        raise InvalidRecording(
            "RECORDING_TOO_LONG",
            f"the recording lasts {sound.frames / sound.samplerate:.1f} s by its header; cut it to {max_s:g} s",
        )


def _check_kind(rate_hz: int, channels: int) -> None:
    if rate_hz not in RATES_HZ or channels > MAX_CHANNELS:
        raise InvalidRecording(
            "RECORDING_UNSUPPORTED",
            f"the recording has {channels} channels at {rate_hz} Hz; use 1 to {MAX_CHANNELS} channels "
            f"at {RATES_HZ.start} to {RATES_HZ.stop - 1} Hz",
        )


def _num_clipped(block: Float32Array) -> int:
    magnitude = np.abs(block)
    if not (peak := magnitude.max()) <= MAX_PEAK:  # true for NaN, too
        found = f"as large as {peak:g}, where full scale is 1" if peak > 0 else "that are not finite"
        raise InvalidRecording("RECORDING_UNREADABLE", f"the recording has samples {found}")
    return int(np.count_nonzero(magnitude >= CLIPPED_FROM))


def _mono(block: Float32Array) -> Float32Array:  # [samples, channels]
    return block[:, 0] if block.shape[1] == 1 else block.mean(axis=1, dtype=np.float32)


def _powers(samples: Float32Array, block: int) -> Float32Array:
    """Return the power of what is heard, so without a constant offset, of each whole block."""
    sound = (samples - samples.mean())[: len(samples) // block * block].reshape(-1, block)
    powers: Float32Array = np.einsum("ij,ij->i", sound, sound) / block
    return powers


def _speech_ms(powers: Float32Array) -> int:
    """Return how long something sounds louder than half-way, in decibels, between the quiet and the loud parts, so
    without pauses; 0 if these hardly differ, as with loud noise, in which pauses cannot be told.

    `powers`: of blocks of SPEECH_BLOCK_MS."""
    levels_db = 10 * np.log10(powers + 1e-12)
    quiet_db, loud_db = np.percentile(levels_db, (10, 90)) if len(powers) else (0.0, 0.0)
    if loud_db - quiet_db < MIN_RANGE_DB:
        return 0
    floor_db = max((quiet_db + loud_db) / 2, loud_db - MAX_RANGE_DB)
    return int(np.count_nonzero(levels_db > floor_db)) * SPEECH_BLOCK_MS


def _resampled(samples: Float32Array, from_hz: int, to_hz: int) -> Float32Array:
    """Resample as the official package does, with librosa.resample's defaults and its rounding of the length."""
    num_samples = math.ceil(len(samples) * (float(to_hz) / from_hz))
    resampled: Float32Array = soxr.resample(samples, from_hz, to_hz, quality="HQ")[:num_samples]
    return np.pad(resampled, (0, num_samples - len(resampled)))
