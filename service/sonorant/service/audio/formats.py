"""Checks the AudioFormat, speed and gain of a request, and returns them as an AudioSpec. Pure."""

from sonorant.engine import EngineInfo
from sonorant.service.audio import opus
from sonorant.service.audio.gain import GAINS_DB
from sonorant.service.audio.stretch import SPEEDS
from sonorant.service.audio.writer import AudioSpec
from sonorant.service.errors import InvalidField, NotServed
from sonorant.tts.v1 import audio_pb2, synthesis_pb2
from sonorant.tts.v1.text_to_speech_service_pb2 import DecodeConfig

RATES_HZ = (8_000, 16_000, 22_050, 24_000, 44_100, 48_000)
FRAME_DURATIONS_MS = range(10, 1001)
SHORT_FRAME_MS = 20  # as in telephony and Opus packets
TELEPHONE_RATE_HZ = 8_000

_ENCODINGS = frozenset(audio_pb2.AudioEncoding.values())
_TELEPHONE = (audio_pb2.AUDIO_ENCODING_MULAW, audio_pb2.AUDIO_ENCODING_ALAW)
_OPUS = (audio_pb2.AUDIO_ENCODING_OGG_OPUS, audio_pb2.AUDIO_ENCODING_OPUS)
_CODES = audio_pb2.AUDIO_ENCODING_CODES
_OTHERS = (
    audio_pb2.AUDIO_ENCODING_PCM_S16LE,
    audio_pb2.AUDIO_ENCODING_WAV,
    audio_pb2.AUDIO_ENCODING_FLAC,
    _CODES,
)


def served_encodings() -> list[audio_pb2.AudioEncoding]:
    return sorted((*_OTHERS, *_TELEPHONE, *(_OPUS if opus.available() else ())))


def check_audio(
    config: synthesis_pb2.SynthesisConfig | DecodeConfig, info: EngineInfo, path: str, *, whole: bool
) -> AudioSpec:
    """Return the checked audio spec. Raises InvalidField and NotServed.

    `path`: the config's path in the request. `whole`: the audio goes out in one message.
    """
    audio = config.audio
    if audio.encoding == _CODES:
        _check_codes(config, info, path)
    encoding = audio.encoding or audio_pb2.AUDIO_ENCODING_PCM_S16LE
    _check_encoding(encoding, f"{path}.audio.encoding", whole)
    rate_hz = _rate_hz(audio.sample_rate_hz, encoding, info, f"{path}.audio.sample_rate_hz")
    speed = _within(config.speed, SPEEDS, f"{path}.speed") if config.HasField("speed") else 1.0
    # Resampling and speed hold some audio back. With frames of a whole codec frame, each would wait for the next one.
    default_ms = round(1000 / info.frame_rate_hz) if rate_hz == info.sample_rate_hz and speed == 1 else SHORT_FRAME_MS
    frame_ms = _frame_ms(audio.frame_duration_ms, default_ms, encoding, f"{path}.audio.frame_duration_ms")
    return AudioSpec(
        encoding=encoding,
        sample_rate_hz=rate_hz,
        frame_duration_ms=frame_ms,
        bitrate_bps=_bitrate_bps(audio.bitrate_bps, encoding, f"{path}.audio.bitrate_bps"),
        native_rate_hz=info.sample_rate_hz,
        speed=speed,
        gain_db=(
            _within(config.volume_gain_db, GAINS_DB, f"{path}.volume_gain_db")
            if config.HasField("volume_gain_db")
            else 0.0
        ),
        may_join=audio.frame_duration_ms == 0 and encoding != audio_pb2.AUDIO_ENCODING_OPUS,
        starts_short=frame_ms == default_ms > SHORT_FRAME_MS,
    )


def _check_encoding(encoding: int, field: str, whole: bool) -> None:
    if encoding not in _ENCODINGS:
        raise InvalidField(field, f"{encoding} is no AudioEncoding")
    if encoding in _OPUS and not opus.available():
        raise NotServed(
            field, f"Opus needs PyAV, which is not installed on this server: {opus.INSTALL}", "OPUS_NOT_INSTALLED"
        )
    if encoding == audio_pb2.AUDIO_ENCODING_OPUS and whole:
        raise InvalidField(field, "bare packets cannot be told apart in one message; use AUDIO_ENCODING_OGG_OPUS")
    if encoding == audio_pb2.AUDIO_ENCODING_FLAC and not whole:
        raise InvalidField(field, "FLAC is for Synthesize only; use AUDIO_ENCODING_WAV or AUDIO_ENCODING_OGG_OPUS")


def _check_codes(config: synthesis_pb2.SynthesisConfig | DecodeConfig, info: EngineInfo, path: str) -> None:
    """Refuse settings that apply only to samples, not to codes."""
    audio, frame_ms = config.audio, round(1000 / info.frame_rate_hz)
    for field, asked, only in (
        ("speed", config.speed or 1.0, 1.0),
        ("volume_gain_db", config.volume_gain_db, 0.0),
        ("audio.sample_rate_hz", audio.sample_rate_hz or info.sample_rate_hz, info.sample_rate_hz),
        ("audio.frame_duration_ms", audio.frame_duration_ms or frame_ms, frame_ms),
    ):
        if asked != only:
            raise InvalidField(
                f"{path}.{field}",
                "codes are sent as the model made them; leave it unset, or set it for Decode",
            )


def _rate_hz(asked_hz: int, encoding: int, info: EngineInfo, field: str) -> int:
    if encoding in _TELEPHONE:
        if asked_hz not in (0, TELEPHONE_RATE_HZ):
            raise InvalidField(field, f"G.711 has {TELEPHONE_RATE_HZ} Hz, not {asked_hz}; leave it unset")
        return TELEPHONE_RATE_HZ
    rate_hz = asked_hz or info.sample_rate_hz
    served_hz = opus.RATES_HZ if encoding in _OPUS else RATES_HZ
    if rate_hz not in served_hz:
        of_what = " with Opus" if rate_hz in RATES_HZ else ""
        raise InvalidField(field, f"{rate_hz} Hz is not served{of_what}; use one of {', '.join(map(str, served_hz))}")
    return rate_hz


def _frame_ms(asked_ms: int, default_ms: int, encoding: int, field: str) -> int:
    if encoding == audio_pb2.AUDIO_ENCODING_OPUS:
        if asked_ms and asked_ms not in opus.PACKETS_MS:
            packets = ", ".join(map(str, opus.PACKETS_MS))
            raise InvalidField(field, f"an Opus packet is not {asked_ms} ms long; use one of {packets}")
        return asked_ms or SHORT_FRAME_MS
    duration_ms = asked_ms or default_ms
    if duration_ms not in FRAME_DURATIONS_MS:
        raise InvalidField(
            field, f"{duration_ms} is not within {FRAME_DURATIONS_MS.start} to {FRAME_DURATIONS_MS.stop - 1}"
        )
    if encoding == audio_pb2.AUDIO_ENCODING_OGG_OPUS and duration_ms % 10:
        raise InvalidField(field, f"Opus packets do not add up to {duration_ms} ms; use a multiple of 10")
    return duration_ms


def _bitrate_bps(asked_bps: int, encoding: int, field: str) -> int:
    if encoding not in _OPUS:
        if asked_bps:
            raise InvalidField(field, "only Opus has a bit rate; leave it unset")
        return 0
    bitrate_bps = asked_bps or opus.DEFAULT_BITRATE_BPS
    if bitrate_bps not in opus.BITRATES_BPS:
        limits = f"{opus.BITRATES_BPS.start} to {opus.BITRATES_BPS.stop - 1}"
        raise InvalidField(field, f"{bitrate_bps} is not within {limits}")
    return bitrate_bps


def decimal(value: float) -> float:
    """Return the decimal that the caller wrote: a `float` field has only 24 bits, and 0.9 should stay 0.9."""
    return float(f"{value:.7g}")


def _within(value: float, limits: tuple[float, float], field: str) -> float:
    low, high = limits
    if not low <= decimal(value) <= high:
        raise InvalidField(field, f"{value:g} is not within {low:g} to {high:g}")
    return decimal(value)
